#include "engine/plan/one_shot.h"

#include "engine/plan/plan_builder.h"

namespace lockstep::plan {

CollectivePlan one_shot_all_reduce(int world_size, std::size_t num_elements) {
  PlanBuilder builder("one-shot all-reduce", world_size, num_elements);
  builder.begin_step("everybody reads everybody");
  for (int reader = 0; reader < world_size; ++reader) {
    for (int peer = 0; peer < world_size; ++peer) {
      if (peer != reader) builder.add(peer, reader, {0, num_elements});
    }
  }
  return builder.finish();
}

}  // namespace lockstep::plan
