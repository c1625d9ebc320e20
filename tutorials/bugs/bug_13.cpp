// All ranks begin with the same weights, and the loss falls on each. Afterwards the ranks' weights
// differ.
//
// Run:  bug_13      lockstep doctor -- bug_13
#include "engine/nn/layers.h"
#include "engine/optim/optimizer.h"
#include "tutorials/bugs/lab.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

// The network as a block of a larger one.
std::shared_ptr<nn::Sequential> make_blocks(Device device) {
  return std::make_shared<nn::Sequential>(
      std::vector<std::shared_ptr<nn::Module>>{make_net(device)});
}

// Averages the gradients of the layers that have some.
void average_layers(const nn::Module& net, comm::Communicator& group) {
  for (const auto& [name, layer] : net.children()) {
    if (dynamic_cast<const nn::Linear*>(layer.get()) == nullptr) continue;
    average_gradients(*layer, group);
  }
}

void train_rank(const Place& place) {
  const auto net = make_blocks(place.device);
  optim::Sgd sgd(net->parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  const tutorial::Rows digits = load_rows();
  for (int step = 0; step < digits.steps_per_epoch(kBatch) - 1; ++step) {
    sgd.zero_grad();
    mean_loss(*net, digits.batch(step, kBatch).shard(place.rank, kRanks, place.device)).backward();
    average_layers(*net, place.group);
    sgd.step();
  }
  report(*net, place);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bugs::run_bug(argc, argv, [] { on_ranks(train_rank); });
}
