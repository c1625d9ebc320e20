// The plans of the other collectives. Each picks an algorithm by the world size: up to 8 ranks
// (one host) the direct one-step form, for more ranks the ring or the tree. n = world_size below.
#pragma once

#include "engine/plan/collective_plan.h"

namespace lockstep::plan {

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
