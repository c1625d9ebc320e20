// The binary tree: values are summed from the leaves up to the root, and the sum goes back down.
//
// Rank r takes the place v = (r - root) mod n; the parent of place v is (v - 1) / 2. The tree is
// floor(log2(n)) levels deep, so it has few steps even for many ranks; but an inner rank talks to
// three others. Large buffers are cut into K pieces that follow each other through the tree, so
// that all levels work at the same time, and the way down begins while later pieces are still on
// the way up.
//
// Source: the pipelined binary tree of Sanders, Speck and Träff, "Two-tree algorithms for full
// bandwidth broadcast, reduction and scan", 2009 (NCCL's tree is their pair of trees); this is the
// single tree. Below: n = world_size, D = tree_depth(n), K = tree_pipeline_pieces(...).
#pragma once

#include "engine/plan/collective_plan.h"

namespace lockstep::plan {

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

}  // namespace lockstep::plan
