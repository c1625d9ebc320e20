// The rows are shuffled, by the seed and the number of the epoch, which nobody tells the sampler.
//
// Run:  bug_05_same_order [--fixed]      lockstep doctor -- bug_05_same_order
#include "datasets/digits.h"
#include "engine/data/sampler.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/ddp.h"
#include "tutorials/bugs/lab.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

void train_rank(const Place& place, Version version) {
  parallel::Ddp net(make_net(place.device), place.group);
  optim::Sgd sgd(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  const data::LabelledTensors digits = datasets::load_digits().train;
  data::SamplerOptions sampling;
  sampling.num_samples = digits.num_rows();
  sampling.batch_size = 60;  // which divides 1,500
  sampling.world_size = kRanks;
  sampling.rank = place.rank;
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    const std::uint64_t told = version == Version::fixed ? epoch : 0;  // no set_epoch(epoch)
    for (const data::BatchShard& shard : data::exact_batches(sampling, told)) {
      const auto [x, labels] = digits.take(shard.rows, place.device);
      sgd.zero_grad();
      mean_loss(net, {x, labels}).backward();
      sgd.step();
    }
  }
  report(*net.module(), place);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bugs::run_bug(argc, argv, [](lockstep::bugs::Version version) {
    on_ranks([&](const Place& place) { train_rank(place, version); });
  });
}
