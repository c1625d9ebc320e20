// The choice of an all-reduce algorithm: the values of the flag --plan.
//
// For n ranks (p the largest power of two <= n, D = floor(log2 n), K pieces):
//   plan              steps         most elements sent by a rank   file
//   ring              2(n-1)        2(n-1)/n buffers               ring.cpp
//   tree              2D+K-1        3 buffers                      tree.cpp
//   halving-doubling  2 log2 p (+2) 2(p-1)/p (+1) buffers          halving_doubling.cpp
//   one-shot          1             n-1 buffers                    shots.cpp
//   two-shot          2             2(n-1)/n buffers               shots.cpp
//   reduce-broadcast  2             n-1 buffers (rank 0)           shots.cpp
//   hierarchical      see there     see there                      hierarchical.cpp
#pragma once

#include <span>
#include <string_view>

#include "engine/plan/collective_plan.h"

namespace lockstep::plan {

// The name of an algorithm; all_reduce_plan() makes its plan, a CollectivePlan.
enum class AllReducePlan {
  automatic,
  ring,
  tree,
  halving_doubling,
  one_shot,
  two_shot,
  reduce_broadcast,
  hierarchical,  // ranks on several hosts
};

// "auto", "ring", "tree", "halving-doubling", "one-shot", "two-shot", "reduce-broadcast",
// "hierarchical".
std::string_view to_string(AllReducePlan plan);

// The reverse. Throws Error{Usage} that lists the names.
AllReducePlan parse_all_reduce_plan(std::string_view name);

// The choice that `automatic` stands for if no more is known than the number of ranks; never
// `automatic` itself. Communicators look at memory and hosts first (Communicator::default_plan).
//   up to 8 ranks: one_shot up to 4096 elements, two_shot above;
//   more ranks: halving_doubling up to 65536 elements, ring above.
// The reason: small buffers are limited by the number of steps, large ones by the bytes. Within a
// host all ranks reach each other directly, so two steps are enough; across hosts a rank should
// have few partners, and only large chunks hide the many steps of a long ring.
AllReducePlan choose_all_reduce_plan(int world_size, std::size_t num_elements);

// Every rank ends with the sum of all buffers, with the same bits on all ranks. All ranks are on
// one host.
// Throws Error{Usage} if world_size < 1.
CollectivePlan all_reduce_plan(AllReducePlan plan, int world_size, std::size_t num_elements);

// The same for ranks on several hosts (hierarchical.cpp); only the hierarchical plan uses their
// places.
CollectivePlan all_reduce_plan(AllReducePlan plan, std::span<const int> host_of_rank,
                               std::size_t num_elements);

// The plans of the other collectives. Each picks an algorithm by the world size: up to 8 ranks (one
// host) the direct one-step form, for more ranks the ring or the tree. n = world_size below.

// Every rank ends with the root's buffer.
// Cost: 1 step, the root sends n-1 buffers (flat_broadcast); or tree_broadcast's.
// Throws Error{Usage} when world_size < 1 or root is outside [0, world_size).
CollectivePlan broadcast_plan(int world_size, std::size_t num_elements, int root);

// num_elements is the whole buffer. Rank r starts with even_chunk(num_elements, n, r) in place and
// ends with all chunks.
// Cost: each rank sends (n-1)/n of the buffer, in 1 step (direct_all_gather) or n-1 (ring).
CollectivePlan all_gather_plan(int world_size, std::size_t num_elements);

// num_elements is the whole buffer. Rank r ends with the sum of even_chunk(num_elements, n, r) in
// place; the rest of its buffer may hold partial sums.
// Cost: each rank sends (n-1)/n of the buffer, in 1 step (direct_reduce_scatter) or n-1 (ring).
CollectivePlan reduce_scatter_plan(int world_size, std::size_t num_elements);

}  // namespace lockstep::plan
