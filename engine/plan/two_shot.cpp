#include "engine/plan/two_shot.h"

#include "engine/plan/plan_builder.h"

namespace lockstep::plan {
namespace {

Chunk chunk_of_rank(int world_size, std::size_t num_elements, int rank) {
  return even_chunk(num_elements, static_cast<std::size_t>(world_size),
                    static_cast<std::size_t>(rank));
}

}  // namespace

CollectivePlan direct_reduce_scatter(int world_size, std::size_t num_elements) {
  PlanBuilder builder("direct reduce-scatter", world_size, num_elements);
  builder.begin_step("reduce-scatter");
  for (int owner = 0; owner < world_size; ++owner) {
    for (int peer = 0; peer < world_size; ++peer) {
      if (peer != owner) builder.add(peer, owner, chunk_of_rank(world_size, num_elements, owner));
    }
  }
  return builder.finish();
}

CollectivePlan direct_all_gather(int world_size, std::size_t num_elements) {
  PlanBuilder builder("direct all-gather", world_size, num_elements);
  builder.begin_step("all-gather");
  for (int owner = 0; owner < world_size; ++owner) {
    for (int peer = 0; peer < world_size; ++peer) {
      if (peer != owner) builder.copy(owner, peer, chunk_of_rank(world_size, num_elements, owner));
    }
  }
  return builder.finish();
}

CollectivePlan two_shot_all_reduce(int world_size, std::size_t num_elements) {
  PlanBuilder builder("two-shot all-reduce", world_size, num_elements);
  builder.append(direct_reduce_scatter(world_size, num_elements));
  builder.append(direct_all_gather(world_size, num_elements));
  return builder.finish();
}

}  // namespace lockstep::plan
