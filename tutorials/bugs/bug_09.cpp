// The ranks split the data set once, by rows, and each cuts its own batches. Training ends with an
// error at the end of the epoch.
//
// Run:  bug_09      lockstep doctor -- bug_09
#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/ddp.h"
#include "tutorials/bugs/lab.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

constexpr int kOwnBatch = 32;

void train_rank(const Place& place) {
  parallel::Ddp net(make_net(place.device), place.group);
  optim::Sgd sgd(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  const tutorial::Rows digits = load_rows();
  const tutorial::Rows mine =
      place.rank == 0 ? digits.part(0, 768, place.device) : digits.part(768, 1500, place.device);
  const int num_steps = mine.count() / kOwnBatch;
  for (int step = 0; step < num_steps; ++step) {
    sgd.zero_grad();
    mean_loss(net, mine.batch(step, kOwnBatch)).backward();
    sgd.step();
  }
  report(*net.module(), place);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bugs::run_bug(argc, argv, [] { on_ranks(train_rank); });
}
