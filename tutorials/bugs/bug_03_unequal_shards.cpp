// Rank 0 has the larger device and takes three quarters of each batch. Every rank's loss is the
// mean over its rows, and Ddp averages the gradients.
//
// Run:  bug_03_unequal_shards [--fixed]      lockstep doctor -- bug_03_unequal_shards
#include "engine/autograd/ops/ops.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/ddp.h"
#include "tutorials/bugs/lab.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

void train_rank(const Place& place, Version version) {
  parallel::Ddp net(make_net(place.device), place.group);
  optim::Sgd sgd(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  const tutorial::Rows digits = load_rows();
  for (int step = 0; step < digits.steps_per_epoch(kBatch); ++step) {
    const tutorial::Rows batch = digits.batch(step, kBatch);
    const int cut = batch.count() * 3 / 4;
    const tutorial::Rows mine = place.rank == 0 ? batch.part(0, cut, place.device)
                                                : batch.part(cut, batch.count(), place.device);
    const double share = 1.0 * mine.count() / batch.count();
    sgd.zero_grad();
    const Variable loss = mean_loss(net, mine);
    if (version == Version::fixed) {
      scale(loss, share * kRanks).backward();
    } else {
      loss.backward();
    }
    sgd.step();
  }
  report(*net.module(), place);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bugs::run_bug(argc, argv, [](lockstep::bugs::Version version) {
    on_ranks([&](const Place& place) { train_rank(place, version); });
  });
}
