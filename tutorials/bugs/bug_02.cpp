// Two ranks train on their own rows and share their gradients. With this learning rate one device
// learns well, and these two learn badly.
//
// Run:  bug_02      lockstep doctor -- bug_02
#include "engine/optim/optimizer.h"
#include "tutorials/bugs/lab.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

void train_rank(const Place& place) {
  const auto net = make_net(place.device);
  optim::Sgd sgd(net->parameters(), {.learning_rate = 0.5});
  const tutorial::Rows digits = load_rows();
  for (int step = 0; step < digits.steps_per_epoch(kBatch) - 1; ++step) {
    sgd.zero_grad();
    mean_loss(*net, digits.batch(step, kBatch).shard(place.rank, kRanks, place.device)).backward();
    for (const Variable& parameter : net->parameters()) {
      place.group.all_reduce(parameter.grad(), {.op = comm::ReduceOp::sum});
    }
    sgd.step();
  }
  report(*net, place);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bugs::run_bug(argc, argv, [] { on_ranks(train_rank); });
}
