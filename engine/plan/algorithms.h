// The algorithms of collectives, each a pure function that makes a plan; the .cpp of its name says
// how it works. n = world_size below. all_reduce_plan.h chooses among them.
#pragma once

#include <span>

#include "engine/plan/collective_plan.h"

namespace lockstep::plan {

// --- ring.cpp: every rank sends only to its right neighbour ---

// Afterwards rank r holds the sum of chunk r (even_chunk(num_elements, n, r)); the rest of its
// buffer holds partial sums.
// Cost: n-1 steps; each rank sends (n-1)/n of the buffer.
CollectivePlan ring_reduce_scatter(int world_size, std::size_t num_elements);

// Rank r starts with chunk r; afterwards every rank holds all chunks.
// Cost: n-1 steps; each rank sends (n-1)/n of the buffer.
CollectivePlan ring_all_gather(int world_size, std::size_t num_elements);

// Reduce-scatter, then all-gather: afterwards every rank holds the sum of all buffers.
// Cost: 2(n-1) steps; each rank sends 2(n-1)/n of the buffer: the least that is possible.
CollectivePlan ring_all_reduce(int world_size, std::size_t num_elements);

// --- halving_doubling.cpp: pairs of ranks exchange, each time twice as far apart ---

// Up to this size the number of steps dominates, so this plan is chosen; above it the bytes do, so
// the ring is.
inline constexpr std::size_t kMaxHalvingDoublingElements = 65536;

// Cost: 2 log2(p) steps, and 2 more if n > p; a rank sends 2(p-1)/p of the buffer, one that stands
// in for an extra rank one buffer more, an extra rank exactly one buffer.
CollectivePlan halving_doubling_all_reduce(int world_size, std::size_t num_elements);

// --- tree.cpp: sums go up a binary tree, and back down; D = tree_depth(n), K pieces ---

// floor(log2(world_size)): levels below the root.
int tree_depth(int world_size);

// The number of pieces K of a buffer. With a latency a per step and a time b per element, the
// pipeline takes (num_rounds + K) (a + b num_elements / K), which is least at K = sqrt(num_rounds *
// num_elements * b / a). We take a / b = 16384 elements, the 64 KiB of float32 that a 10 GB/s link
// moves in 6.5 us, about the cost of starting a step. num_rounds is the length of the pipeline
// without its first step: 2D-1, or D-1 one way. K is at least 1, at most 64, and never more than
// num_elements.
std::size_t tree_pipeline_pieces(int num_rounds, std::size_t num_elements);

// Afterwards every rank holds the root's buffer.
// Cost: D+K-1 steps; an inner rank sends the buffer twice, a leaf never.
// Throws Error{Usage} for a root outside [0, world_size).
CollectivePlan tree_broadcast(int world_size, std::size_t num_elements, int root);

// Up to rank 0 and back.
// Cost: 2D+K-1 steps; the root sends 2 buffers, an inner rank at most 3, a leaf 1.
CollectivePlan tree_all_reduce(int world_size, std::size_t num_elements);

// --- shots.cpp: one or two steps ---

// Every rank reads all others' buffers, and adds them up by itself.
// Cost: 1 step; each rank sends (n-1) times the buffer.
CollectivePlan one_shot_all_reduce(int world_size, std::size_t num_elements);

// Up to so many ranks may all talk to each other in one step, as the ranks of one host do. More
// ranks use the ring, the tree or halving-doubling, in which a rank has few partners.
inline constexpr int kMaxDirectRanks = 8;

// Rank r reads chunk r of all others and adds it to its own, in the order of ranks.
// Cost: 1 step; each rank sends (n-1)/n of the buffer.
CollectivePlan direct_reduce_scatter(int world_size, std::size_t num_elements);

// Rank r starts with chunk r; every rank reads every other one's chunk.
// Cost: 1 step; each rank sends (n-1)/n of the buffer.
CollectivePlan direct_all_gather(int world_size, std::size_t num_elements);

// Reduce-scatter, then all-gather, each in one step in which every rank reads directly from all
// others. It moves the bytes of the ring in two steps instead of 2(n-1): the right choice for large
// buffers if every rank reaches every other one equally well (threads of one process, GPUs behind
// NVSwitch). No step writes what it reads, so both run in place.
// Source: the two-shot custom all-reduce of TensorRT-LLM and vLLM.
// Cost: 2 steps; each rank sends 2(n-1)/n of the buffer. Sums are in the order of ranks.
CollectivePlan two_shot_all_reduce(int world_size, std::size_t num_elements);

// Afterwards `root` holds the sum of all buffers, the other buffers are unchanged.
// Cost: 1 step; every other rank sends the buffer, the root receives n-1 buffers.
// Throws Error{Usage} for a root outside [0, world_size).
CollectivePlan flat_reduce(int world_size, std::size_t num_elements, int root);

// Afterwards every rank holds the root's buffer.
// Cost: 1 step; the root sends n-1 buffers. Throws as flat_reduce.
CollectivePlan flat_broadcast(int world_size, std::size_t num_elements, int root);

// The naive all-reduce: flat_reduce to rank 0, which adds up in the order of ranks, then
// flat_broadcast from it. It has two steps, but the root's link carries everything: with 8 ranks it
// moves 7 buffers in and 7 out while the other links idle. nn.DataParallel does this with gradients
// (sum on device 0) and parameters (broadcast from device 0), and the other plans improve on it.
// Source: the allreduce function of "Dive into Deep Learning", section 13.5.
// Cost: 2 steps; rank 0 sends and receives n-1 buffers, every other rank one.
CollectivePlan reduce_broadcast_all_reduce(int world_size, std::size_t num_elements);

// --- hierarchical.cpp: as little as possible crosses the links between hosts ---

// host_of_rank[r]: any number that the ranks of one host share, and no others.
// Cost: for H hosts with R ranks each, 2 steps and those between the hosts; 2(H-1)/H buffers leave
// each host (ring), spread evenly over its ranks.
// Throws Error{Usage} if there is no rank.
CollectivePlan hierarchical_all_reduce(std::span<const int> host_of_rank, std::size_t num_elements);

}  // namespace lockstep::plan
