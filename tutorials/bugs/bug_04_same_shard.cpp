// A loop for one device that was given Ddp: the sampler still believes that it serves one rank.
//
// Run:  bug_04_same_shard [--fixed]      lockstep doctor -- bug_04_same_shard
#include "datasets/digits.h"
#include "engine/data/data_loader.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/ddp.h"
#include "tutorials/bugs/lab.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

void train_rank(const Place& place, Version version) {
  parallel::Ddp net(make_net(place.device), place.group);
  optim::Sgd sgd(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  data::BatchOptions options{.batch = 60, .shuffle = true, .device = place.device};
  if (version == Version::fixed) {
    options.rank = place.rank;
    options.world_size = kRanks;
  }
  data::DataLoader loader(datasets::load_digits(0, datasets::kNumTrainDigits), options);
  for (const data::Batch& batch : loader) {
    sgd.zero_grad();
    mean_loss(net, {batch.x, batch.labels}).backward();
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
