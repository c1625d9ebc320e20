// Two-shot: reduce-scatter, then all-gather, each in one step in which everybody reads directly
// from everybody.
//
// The bytes of the ring in two steps instead of 2(n-1): the right choice for large buffers where
// every rank reaches every other one equally well (threads of one process, GPUs behind NVSwitch).
// Nothing that is read in a step is written in it, so both steps run in place.
//
// Source: the two-shot custom all-reduce of TensorRT-LLM and vLLM. n = world_size below.
#pragma once

#include "engine/plan/collective_plan.h"

namespace lockstep::plan {

// Ranks of which each may talk to every other one in a step, as those of one host do; more of them
// go by the ring, the tree or halving-doubling, where a rank has few partners.
inline constexpr int kMaxDirectRanks = 8;

// Rank r reads chunk r of all others and adds it to its own, in the order of ranks.
// Cost: 1 step; each rank sends (n-1)/n of the buffer.
CollectivePlan direct_reduce_scatter(int world_size, std::size_t num_elements);

// Rank r starts with chunk r; every rank reads every other one's chunk.
// Cost: 1 step; each rank sends (n-1)/n of the buffer.
CollectivePlan direct_all_gather(int world_size, std::size_t num_elements);

// Cost: 2 steps; each rank sends 2(n-1)/n of the buffer. Sums are in the order of ranks.
CollectivePlan two_shot_all_reduce(int world_size, std::size_t num_elements);

}  // namespace lockstep::plan
