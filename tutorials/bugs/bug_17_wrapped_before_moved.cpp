// The model is wrapped where it was made, and then moved to the rank's device. PyTorch goes on
// without reducing a gradient; this engine stops, and the question is what it means by that.
//
// Run:  bug_17_wrapped_before_moved [--fixed]      lockstep doctor -- bug_17_wrapped_before_moved
#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/ddp.h"
#include "tutorials/bugs/lab.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

void train_rank(const Place& place, Version version) {
  const Device home{DeviceType::cpu, 8 + place.rank};  // it is made there
  const auto model = make_net(home);
  if (version == Version::fixed) model->to(place.device);
  parallel::Ddp net(model, place.group);
  if (version == Version::with_bug) net.to(place.device);
  optim::Sgd sgd(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  const tutorial::Rows digits = load_rows();
  for (int step = 0; step < digits.steps_per_epoch(kBatch) - 1; ++step) {
    sgd.zero_grad();
    mean_loss(net, digits.batch(step, kBatch).shard(place.rank, kRanks, place.device)).backward();
    sgd.step();
  }
  report(*model, place);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bugs::run_bug(argc, argv, [](lockstep::bugs::Version version) {
    on_ranks([&](const Place& place) { train_rank(place, version); });
  });
}
