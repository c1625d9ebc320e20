// The two-shot plan where all ranks share one address space: both steps in one pass.
//
// Rank r owns chunk r. Piece by piece it reads the piece from all ranks, adds the values up in the
// order of ranks, and writes the sum to all ranks while it is still in the first-level cache. So
// every element is read once and written once on each rank, and the ranks meet only at the
// beginning and at the end. No other rank touches chunk r in between, so the two steps of the plan
// become one.
#pragma once

#include <span>

#include "engine/comm/reduce.h"

namespace lockstep::comm {

// Does this rank's part; the caller waits for the other ranks before and afterwards.
// buffers[r]: num_elements of `dtype`, of rank r. factor: see reduce_in_order.
// The result has the bits of the two-shot plan.
void shared_memory_all_reduce(const Reduction& reduction, double factor, int rank,
                              std::span<void* const> buffers, DType dtype,
                              std::size_t num_elements);

// The elements that the two-shot plan makes this rank send.
std::size_t elements_sent_in_shared_memory(int rank, int world_size, std::size_t num_elements);

}  // namespace lockstep::comm
