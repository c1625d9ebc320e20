// Every rank draws its own weights, and gradients are averaged in every step. The network learns.
//
// Run:  bug_01_no_broadcast [--fixed]      lockstep doctor -- bug_01_no_broadcast
#include "engine/optim/optimizer.h"
#include "tutorials/bugs/lab.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

void train_rank(const Place& place, Version version) {
  const auto net =
      make_net(place.device, /*seed=*/place.rank);  // as from a clock, or random_device
  if (version == Version::fixed) {
    for (const Variable& parameter : net->parameters()) place.group.broadcast(parameter.value(), 0);
  }
  optim::Sgd sgd(net->parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  const tutorial::Rows digits = load_rows();
  for (int step = 0; step < digits.steps_per_epoch(kBatch) - 1; ++step) {
    sgd.zero_grad();
    mean_loss(*net, digits.batch(step, kBatch).shard(place.rank, kRanks, place.device)).backward();
    average_gradients(*net, place.group);
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
