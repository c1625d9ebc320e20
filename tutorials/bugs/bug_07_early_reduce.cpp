// Each step adds up the gradients of two micro-batches. They are averaged over the ranks as soon as
// there are any.
//
// Run:  bug_07_early_reduce [--fixed]      lockstep doctor -- bug_07_early_reduce
#include "engine/autograd/ops/ops.h"
#include "engine/optim/optimizer.h"
#include "tutorials/bugs/lab.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

void train_rank(const Place& place, Version version) {
  const auto net = make_net(place.device);
  optim::Sgd sgd(net->parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  const tutorial::Rows digits = load_rows();
  for (int step = 0; step < 11; ++step) {
    sgd.zero_grad();
    for (int micro = 0; micro < 2; ++micro) {
      const tutorial::Rows rows = digits.batch(2 * step + micro, kBatch);
      scale(mean_loss(*net, rows.shard(place.rank, kRanks, place.device)), 0.5).backward();
      const int when = version == Version::fixed ? 1 : 0;
      if (micro == when) average_gradients(*net, place.group);
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
