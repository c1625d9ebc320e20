// The two-shot plan where all ranks share one address space: both steps in one pass.
//
// Rank r owns chunk r. Piece by piece it reads the piece from all ranks, adds the values up in the
// order of ranks, and writes the sum to all ranks while it is still in the first-level cache. So
// every element is read once and written once on each rank, and the ranks meet only at the
// beginning and at the end. Nobody else touches chunk r in between: that is what makes the two
// steps of the plan one.
#pragma once

#include <span>

#include "engine/comm/plan_executor.h"

namespace lockstep::comm {

// buffers[r]: num_elements of `dtype` of rank r. factor: of every contribution (see
// reduce_in_order). Does this rank's part; the caller then waits for the others
// (AddressSpace::finish_shared).
// The result has the bits of the two-shot plan.
void direct_all_reduce(const Reduction& reduction, double factor, int rank,
                       std::span<void* const> buffers, DType dtype, std::size_t num_elements);

// What the two-shot plan makes this rank send, in elements.
std::size_t direct_all_reduce_elements_sent(int rank, int world_size, std::size_t num_elements);

}  // namespace lockstep::comm
