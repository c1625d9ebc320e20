// A training loop with two ranks. It recognises no more digits than one rank alone would, although
// it computes twice as much.
//
// Run:  bug_04      lockstep doctor -- bug_04
#include "datasets/digits.h"
#include "engine/data/data_loader.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/ddp.h"
#include "tutorials/bugs/lab.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

void train_rank(const Place& place) {
  parallel::Ddp net(make_net(place.device), place.group);
  optim::Sgd sgd(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  data::DataLoader loader(datasets::load_digits(0, datasets::kNumTrainDigits),
                          {.batch = 60, .shuffle = true, .device = place.device});
  for (const data::Batch& batch : loader) {
    sgd.zero_grad();
    mean_loss(net, {batch.x, batch.labels}).backward();
    sgd.step();
  }
  report(*net.module(), place);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bugs::run_bug(argc, argv, [] { on_ranks(train_rank); });
}
