// Weights are right on all ranks. The printed loss is not that of one device that trains on the
// same batches.
//
// Run:  bug_10      lockstep doctor -- bug_10
#include <fmt/format.h>

#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/ddp.h"
#include "tutorials/bugs/lab.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

void train_rank(const Place& place) {
  parallel::Ddp net(make_net(place.device), place.group);
  optim::Sgd sgd(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  const tutorial::Rows digits = load_rows().part(0, 1472);  // 23 batches, all as large
  for (int epoch = 0; epoch < 4; ++epoch) {
    double loss = 0;
    for (int step = 0; step < digits.steps_per_epoch(kBatch); ++step) {
      const tutorial::Rows batch = digits.batch(step, kBatch);
      sgd.zero_grad();
      const Variable mean = mean_loss(net, batch.shard(place.rank, kRanks, place.device));
      mean.backward();
      sgd.step();
      loss = mean.value().item();
    }
    if (place.rank == 0) fmt::print("epoch {}  loss {:.4f}\n", epoch, loss);
  }
  report(*net.module(), place);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bugs::run_bug(argc, argv, [] { on_ranks(train_rank); });
}
