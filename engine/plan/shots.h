// One-shot: every rank reads all others' whole buffers and adds them up by itself.
//
// It has one step, and so the lowest latency; but it moves n-1 times the buffer per rank, so it is
// only for small buffers. Every rank adds in the order of ranks, so all get the same bits. Each
// buffer is read while its owner writes the result, so ranks read a copy made before.
//
// Source: the one-shot custom all-reduce of TensorRT-LLM and vLLM. n = world_size below.
#pragma once

#include "engine/plan/collective_plan.h"

namespace lockstep::plan {

// Cost: 1 step; each rank sends (n-1) times the buffer.
CollectivePlan one_shot_all_reduce(int world_size, std::size_t num_elements);

// Two-shot: reduce-scatter, then all-gather, each in one step in which every rank reads directly
// from all others.
//
// It moves the bytes of the ring in two steps instead of 2(n-1): the right choice for large buffers
// if every rank reaches every other one equally well (threads of one process, GPUs behind
// NVSwitch). No step writes what it reads, so both steps run in place.
//
// Source: the two-shot custom all-reduce of TensorRT-LLM and vLLM. n = world_size below.

// Up to so many ranks may all talk to each other in one step, as the ranks of one host do. More
// ranks use the ring, the tree or halving-doubling, in which a rank has few partners.
inline constexpr int kMaxDirectRanks = 8;

// Rank r reads chunk r of all others and adds it to its own, in the order of ranks.
// Cost: 1 step; each rank sends (n-1)/n of the buffer.
CollectivePlan direct_reduce_scatter(int world_size, std::size_t num_elements);

// Rank r starts with chunk r; every rank reads every other one's chunk.
// Cost: 1 step; each rank sends (n-1)/n of the buffer.
CollectivePlan direct_all_gather(int world_size, std::size_t num_elements);

// Cost: 2 steps; each rank sends 2(n-1)/n of the buffer. Sums are in the order of ranks.
CollectivePlan two_shot_all_reduce(int world_size, std::size_t num_elements);

// The naive all-reduce: every rank sends its buffer to one rank, which adds them up in the order of
// ranks and sends the sum back to all.
//
// It has two steps, but the root's link carries everything: with 8 ranks it moves 7 buffers in and
// 7 out while the other links idle. nn.DataParallel does this with gradients (sum on device 0) and
// parameters (broadcast from device 0), and the other plans improve on it.
//
// Source: the allreduce function of "Dive into Deep Learning", section 13.5.
// n = world_size below.

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
