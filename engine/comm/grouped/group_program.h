// What all ranks together do to carry out a plan, when one thread enqueues it for every rank's
// stream: the plan's steps, with everything that can be worked out beforehand.
//
// The same plan seen from one rank, which meets the others by messages, is rank_program.h.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/plan/collective_plan.h"

namespace lockstep::comm {

// Elements that a staged chunk takes up: chunks in staging memory begin aligned.
inline std::size_t staging_room(std::size_t num_elements) {
  return (num_elements + 15) / 16 * 16;
}

// A chunk that a step both sends and overwrites on its rank: copied to the rank's staging memory
// first, and read from there.
struct GroupStage {
  int rank = 0;
  plan::Chunk chunk;
  std::size_t staging_offset = 0;  // in elements
};

// Where a write reads a chunk.
struct GroupSource {
  int rank = 0;
  enum class From { buffer, staging } from = From::buffer;
  std::size_t staging_offset = 0;  // of From::staging
};

struct GroupWrite {
  plan::Chunk chunk;
  plan::Combine combine = plan::Combine::copy;
  // In the order in which they are added: ranks ascending, the writing rank among them. The one
  // sender of a copy.
  std::vector<GroupSource> sources;
};

// What one rank writes in a step.
struct GroupReceive {
  int rank = 0;
  std::vector<int> from_ranks;     // its stream waits until these have come to this step
  std::vector<std::size_t> after;  // and for these receives, which read what it overwrites
  std::size_t number = 0;          // of this receive, counted through all steps
  std::vector<GroupWrite> writes;  // by rising offset
};

struct GroupStep {
  std::vector<GroupStage> staged;
  std::vector<int> senders;  // ascending
  std::vector<GroupReceive> receives;
};

struct GroupProgram {
  std::vector<GroupStep> steps;
  std::size_t num_receives = 0;
  // At the end: rank r's stream waits for these receives, which read r's memory. By rank.
  std::vector<std::vector<std::size_t>> at_end;
  // Elements of staging memory, by rank.
  std::vector<std::size_t> num_staging_elements;
  // The same for a rank that cannot read the others' memory and fetches what it adds up: the most
  // that one write takes.
  std::vector<std::size_t> num_fetched_elements;
};

// Throws Error{Usage} when the plan is not valid.
GroupProgram group_program(const plan::CollectivePlan& plan);

}  // namespace lockstep::comm
