#include "engine/plan/reduce_broadcast.h"

#include <fmt/format.h>

#include "engine/plan/plan_builder.h"

namespace lockstep::plan {

CollectivePlan flat_reduce(int world_size, std::size_t num_elements, int root) {
  PlanBuilder builder("flat reduce", world_size, num_elements);
  require_root("flat reduce", world_size, root);
  builder.begin_step(fmt::format("reduce to rank {}", root));
  for (int rank = 0; rank < world_size; ++rank) {
    if (rank != root) builder.add(rank, root, {0, num_elements});
  }
  return builder.finish();
}

CollectivePlan flat_broadcast(int world_size, std::size_t num_elements, int root) {
  PlanBuilder builder("flat broadcast", world_size, num_elements);
  require_root("flat broadcast", world_size, root);
  builder.begin_step(fmt::format("broadcast from rank {}", root));
  for (int rank = 0; rank < world_size; ++rank) {
    if (rank != root) builder.copy(root, rank, {0, num_elements});
  }
  return builder.finish();
}

CollectivePlan reduce_broadcast_all_reduce(int world_size, std::size_t num_elements) {
  PlanBuilder builder("reduce-broadcast all-reduce", world_size, num_elements);
  builder.append(flat_reduce(world_size, num_elements, 0));
  builder.append(flat_broadcast(world_size, num_elements, 0));
  return builder.finish();
}

}  // namespace lockstep::plan
