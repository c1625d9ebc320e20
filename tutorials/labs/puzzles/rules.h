// The rules of a schedule: says in one sentence what breaks them first, and else how long the step
// takes and what each GPU holds when.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tutorials/labs/puzzles/clock.h"
#include "tutorials/labs/puzzles/verbs.h"

namespace lab {

// A call on the GPU's compute stream, or what it started on the others: a collective, or a message.
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
  PuzzleSizes sizes;
  std::string wrong = {};  // "rank 1 uses the parameters of layer 2 in ..."; empty: all is right
  double seconds = 0;
  std::size_t most_bytes = 0;                  // on the GPU that holds most
  std::vector<Event> events = {};              // each GPU's in the order of its calls
  std::vector<std::vector<Held>> memory = {};  // by rank, by time
  std::vector<std::vector<int>> holders = {};  // by layer: the ranks that loaded it
  std::vector<Keep> keeps = {};                // by layer: how much of it they keep
};

// Plays a schedule; one that breaks a rule, up to there. Cost: quadratic in the number of GPUs,
// linear in the calls.
Played play(const PuzzleSizes& sizes, const Programs& programs);

}  // namespace lab
