// A collective operation as a value: which rank sends which chunk to whom, step by step.
//
// A plan is made by a pure function (ring.h, tree.h, ...), holds no memory, thread or device, and
// has three readers: the communicator runs it, the tutorials print it, the predictor charges it
// against a topology.
//
// What a step means: all its transfers happen at once, so every read sees the values from before
// the step; what a rank both sends and overwrites in it, an executor has to copy first. When a rank
// receives several `add` transfers for the same chunk in one step, the result is the sum over its
// own value and all senders' values in the order of their ranks, so that ranks that add the same
// values get the same bits.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/plan/chunk.h"

namespace lockstep::plan {

enum class Combine {
  copy,  // the sender's values replace the receiver's
  add,   // the sender's values are added to the receiver's
};

// The chunk is the same range in the sender's and in the receiver's buffer.
struct Transfer {
  int from_rank = 0;
  int to_rank = 0;
  Chunk chunk;
  Combine combine = Combine::copy;

  bool operator==(const Transfer&) const = default;
};

struct Step {
  std::string label;
  std::vector<Transfer> transfers;

  bool operator==(const Step&) const = default;
};

// Every rank holds a buffer of num_elements. No transfer is empty, and no step is without
// transfers: a plan for one rank or for no elements has no steps.
struct CollectivePlan {
  std::string name;
  int world_size = 1;
  std::size_t num_elements = 0;
  std::vector<Step> steps;

  bool operator==(const CollectivePlan&) const = default;
};

std::size_t num_steps(const CollectivePlan& plan);

// Totals over all steps. REQUIRES: 0 <= rank < world_size, else throws Error{Usage}.
std::size_t elements_sent(const CollectivePlan& plan, int rank);
std::size_t elements_received(const CollectivePlan& plan, int rank);

// The total of the rank that sends most: the one that everybody waits for.
std::size_t max_elements_sent(const CollectivePlan& plan);

// A text for people: a line per transfer, step by step, with bytes of element_size per element,
// and each rank's totals at the end.
std::string to_string(const CollectivePlan& plan, std::size_t element_size);

}  // namespace lockstep::plan
