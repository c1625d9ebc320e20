// The ranks add up their gradients, each that of a mean over its own rows. The learning rate is one
// that suits one device.
//
// Run:  bug_02_sum_for_mean [--fixed]      lockstep doctor -- bug_02_sum_for_mean
#include "engine/optim/optimizer.h"
#include "tutorials/bugs/lab.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

void train_rank(const Place& place, Version version) {
  const auto net = make_net(place.device);
  optim::Sgd sgd(net->parameters(), {.learning_rate = 0.5});
  const tutorial::Rows digits = load_rows();
  const comm::ReduceOp op =
      version == Version::fixed ? comm::ReduceOp::average : comm::ReduceOp::sum;
  for (int step = 0; step < digits.steps_per_epoch(kBatch) - 1; ++step) {
    sgd.zero_grad();
    mean_loss(*net, digits.batch(step, kBatch).shard(place.rank, kRanks, place.device)).backward();
    for (const Variable& parameter : net->parameters()) {
      place.group.all_reduce(parameter.grad(), {.op = op});
    }
    sgd.step();
  }
  report(*net, place);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bugs::run_bug(argc, argv, [](lockstep::bugs::Version version) {
    on_ranks([&](const Place& place) { train_rank(place, version); });
  });
}
