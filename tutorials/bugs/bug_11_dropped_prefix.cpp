// Training goes on from the weights of a wrapped model. Names that do not fit are no error, since
// the file may have layers that this model has not.
//
// Run:  bug_11_dropped_prefix [--fixed]      lockstep doctor -- bug_11_dropped_prefix
#include "engine/nn/state_dict.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/ddp.h"
#include "tutorials/bugs/lab.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

void train(nn::Module& net, const tutorial::Rows& digits, const Place& place, int steps) {
  optim::Sgd sgd(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  for (int step = 0; step < steps; ++step) {
    sgd.zero_grad();
    mean_loss(net, digits.batch(step, kBatch).shard(place.rank, kRanks, place.device)).backward();
    sgd.step();
  }
}

void train_rank(const Place& place, Version version) {
  const tutorial::Rows digits = load_rows();
  nn::StateDict saved;
  {
    parallel::Ddp net(make_net(place.device), place.group);
    train(net, digits, place, 20);
    saved = nn::state_dict(net);  // "module.0.weight", ...
  }
  const auto resumed = make_net(place.device, /*seed=*/1);
  if (version == Version::fixed) saved = nn::strip_prefix(saved, "module.");
  nn::load_state_dict(*resumed, saved, nn::Strict::no);
  parallel::Ddp net(resumed, place.group);
  train(net, digits, place, 20);
  report(*resumed, place);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bugs::run_bug(argc, argv, [](lockstep::bugs::Version version) {
    on_ranks([&](const Place& place) { train_rank(place, version); });
  });
}
