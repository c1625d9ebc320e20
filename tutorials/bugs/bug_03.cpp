// Rank 0 has the larger device and takes three quarters of each batch. After some steps the weights
// are not those of one device that trains on the same batches.
//
// Run:  bug_03      lockstep doctor -- bug_03
#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/ddp.h"
#include "tutorials/bugs/lab.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

void train_rank(const Place& place) {
  parallel::Ddp net(make_net(place.device), place.group);
  optim::Sgd sgd(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  const tutorial::Rows digits = load_rows();
  for (int step = 0; step < digits.steps_per_epoch(kBatch); ++step) {
    const tutorial::Rows batch = digits.batch(step, kBatch);
    const int cut = batch.count() * 3 / 4;
    const tutorial::Rows mine = place.rank == 0 ? batch.part(0, cut, place.device)
                                                : batch.part(cut, batch.count(), place.device);
    sgd.zero_grad();
    mean_loss(net, mine).backward();
    sgd.step();
  }
  report(*net.module(), place);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bugs::run_bug(argc, argv, [] { on_ranks(train_rank); });
}
