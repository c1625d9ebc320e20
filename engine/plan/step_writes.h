// A step seen from the rank that writes: what an executor needs to run it.
#pragma once

#include <vector>

#include "engine/plan/collective_plan.h"

namespace lockstep::plan {

// One chunk of one rank's buffer, and everybody who sends to it in this step.
//   copy: exactly one sender; chunk = sender's chunk.
//   add:  chunk = the sum of the senders' and the own values, added up in the order of ranks; the
//         own rank takes its place in that order: rank 1 with senders {0, 2} gets (v0 + v1) + v2.
struct Write {
  Chunk chunk;
  Combine combine = Combine::copy;
  std::vector<int> from_ranks;  // ascending

  bool operator==(const Write&) const = default;
};

// All that `rank` receives in this step, by rising offset. The chunks of a valid plan's writes do
// not overlap.
std::vector<Write> writes_of_rank(const Step& step, int rank);

// Throws Error{Usage}, naming plan, step and transfer, unless every rank exists, no rank sends to
// itself, every chunk is inside the buffer and not empty, and no two writes of a rank in one step
// overlap (several adds to the same chunk from different ranks are one write).
void require_valid(const CollectivePlan& plan);

}  // namespace lockstep::plan
