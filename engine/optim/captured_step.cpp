// A step() that was captured in a graph: what is around each launch.
#include "engine/core/thread_context.h"
#include "engine/optim/optimizer.h"

namespace lockstep::optim {

void Optimizer::write_learning_rate() {
  for (Group& group : groups_) write_learning_rate(group);
}

void Optimizer::count_replayed_step() {
  ++thread_context().step;
  for (Group& group : groups_) {
    if (!group.members.empty()) count_step(group);
  }
}

}  // namespace lockstep::optim
