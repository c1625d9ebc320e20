// Recursive halving and doubling: in each step a rank exchanges with one partner, first the
// neighbour (rank xor 1), then twice as far away, and so on; each time it keeps half of what it
// still had to sum. The way back doubles the finished part until every rank has all of it.
//
// As few bytes as the ring, in 2 log2(n) steps instead of 2(n-1).
//
// If the world size is not a power of two, let p be the largest power of two below it and e = n - p
// the number of extra ranks: ranks 0, 2, ... 2e-2 first add their buffer to their right
// neighbour's, sit out, and get the result at the end.
//
// With a power of two, every element is summed in the pairwise binary tree over the ranks,
// ((0+1)+(2+3))+((4+5)+(6+7)), which the bitwise mode needs between devices (micro_shards.h).
//
// Source: Rabenseifner's algorithm in Thakur, Rabenseifner and Gropp, "Optimization of collective
// communication operations in MPICH", 2005 (vector halving with distance doubling).
#pragma once

#include "engine/plan/collective_plan.h"

namespace lockstep::plan {

// Up to this size the number of steps dominates, so this plan is chosen; above it the bytes do, so
// the ring is.
inline constexpr std::size_t kMaxHalvingDoublingElements = 65536;

// Cost: 2 log2(p) steps, and 2 more if n > p; a rank sends 2(p-1)/p of the buffer, one that stands
// in for an extra rank one buffer more, an extra rank exactly one buffer.
CollectivePlan halving_doubling_all_reduce(int world_size, std::size_t num_elements);

}  // namespace lockstep::plan
