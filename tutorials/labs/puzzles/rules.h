// The rules of a schedule: says in one sentence what breaks them first, and else how long the step
// takes and what each GPU holds when.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tutorials/labs/puzzles/clock.h"
#include "tutorials/labs/puzzles/verbs.h"

namespace lab {

// A call on its stream.
struct Event {
  Verb verb;
  std::vector<int> gpus;
  Stream stream = Stream::compute;
  Interval time;
};

struct Held {
  double seconds = 0;
  std::size_t num_bytes = 0;  // from then on
};

struct Played {
  std::string wrong;  // "rank 1 uses the parameters of layer 2 in ..."; empty: all is right
  double seconds = 0;
  std::size_t most_bytes = 0;             // on the GPU that holds most
  std::vector<Event> events;              // without those that take no time
  std::vector<std::vector<Held>> memory;  // by rank, by time
};

// Of a schedule that breaks a rule: the part before. Cost: quadratic in the number of GPUs, linear
// in the calls.
Played play(const PuzzleSizes& sizes, const Programs& programs);

}  // namespace lab
