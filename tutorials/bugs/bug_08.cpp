// A network with batch normalisation. Both ranks have the same weights, yet in evaluation
// their networks answer differently.
//
// Run:  bug_08      lockstep doctor -- bug_08
#include "engine/core/rng.h"
#include "engine/nn/layers.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/ddp.h"
#include "tutorials/bugs/lab.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

std::shared_ptr<nn::Sequential> make_normalised_net(Device device) {
  Rng rng(/*seed=*/0);
  const auto net = std::make_shared<nn::Sequential>(std::vector<std::shared_ptr<nn::Module>>{
      std::make_shared<nn::Linear>(64, 32, rng), std::make_shared<nn::BatchNorm1d>(32),
      std::make_shared<nn::ReLU>(), std::make_shared<nn::Linear>(32, 10, rng)});
  net->to(device);
  return net;
}

void train_rank(const Place& place) {
  parallel::DdpOptions options;
  options.buffers = parallel::DdpOptions::Buffers::keep;
  parallel::Ddp net(make_normalised_net(place.device), place.group, options);
  optim::Sgd sgd(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  const tutorial::Rows digits = load_rows();
  for (int step = 0; step < digits.steps_per_epoch(kBatch) - 1; ++step) {
    sgd.zero_grad();
    mean_loss(net, digits.batch(step, kBatch).shard(place.rank, kRanks, place.device)).backward();
    sgd.step();
  }
  report(*net.module(), place);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bugs::run_bug(argc, argv, [] { on_ranks(train_rank); });
}
