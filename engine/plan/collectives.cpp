#include "engine/plan/collectives.h"

#include "engine/plan/reduce_broadcast.h"
#include "engine/plan/ring.h"
#include "engine/plan/tree.h"
#include "engine/plan/two_shot.h"

namespace lockstep::plan {

CollectivePlan broadcast_plan(int world_size, std::size_t num_elements, int root) {
  return world_size <= kMaxDirectRanks ? flat_broadcast(world_size, num_elements, root)
                                       : tree_broadcast(world_size, num_elements, root);
}

CollectivePlan all_gather_plan(int world_size, std::size_t num_elements) {
  return world_size <= kMaxDirectRanks ? direct_all_gather(world_size, num_elements)
                                       : ring_all_gather(world_size, num_elements);
}

CollectivePlan reduce_scatter_plan(int world_size, std::size_t num_elements) {
  return world_size <= kMaxDirectRanks ? direct_reduce_scatter(world_size, num_elements)
                                       : ring_reduce_scatter(world_size, num_elements);
}

}  // namespace lockstep::plan
