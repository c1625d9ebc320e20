// The naive all-reduce: everybody sends its buffer to one rank, which adds them up in the order of
// ranks and sends the sum back to everybody.
//
// Two steps, but the root's link carries everything: with 8 ranks it moves 7 buffers in and 7 out
// while the other links idle. It is what nn.DataParallel does with gradients (sum on device 0) and
// parameters (broadcast from device 0), and the baseline that the other plans improve on.
//
// Source: the allreduce function of "Dive into Deep Learning", section 13.5.
// n = world_size below.
#pragma once

#include "engine/plan/collective_plan.h"

namespace lockstep::plan {

// Afterwards `root` holds the sum of all buffers, the other buffers are unchanged.
// Cost: 1 step; every other rank sends the buffer, the root receives n-1 buffers.
// Throws Error{Usage} for a root outside [0, world_size).
CollectivePlan flat_reduce(int world_size, std::size_t num_elements, int root);

// Afterwards every rank holds the root's buffer.
// Cost: 1 step; the root sends n-1 buffers. Throws as flat_reduce.
CollectivePlan flat_broadcast(int world_size, std::size_t num_elements, int root);

// flat_reduce to rank 0, then flat_broadcast from it.
// Cost: 2 steps; rank 0 sends and receives n-1 buffers, every other rank one.
CollectivePlan reduce_broadcast_all_reduce(int world_size, std::size_t num_elements);

}  // namespace lockstep::plan
