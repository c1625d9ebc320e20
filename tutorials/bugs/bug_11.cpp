// A training is saved and continued. After the break the network recognises fewer digits than
// without it.
//
// Run:  bug_11      lockstep doctor -- bug_11
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

void train_rank(const Place& place) {
  const tutorial::Rows digits = load_rows();
  nn::StateDict saved;
  {
    parallel::Ddp net(make_net(place.device), place.group);
    train(net, digits, place, 20);
    saved = nn::state_dict(net);
  }
  const auto resumed = make_net(place.device, /*seed=*/1);
  nn::load_state_dict(*resumed, saved,
                      nn::Strict::no);  // the file may have layers that this model has not
  parallel::Ddp net(resumed, place.group);
  train(net, digits, place, 20);
  report(*resumed, place);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bugs::run_bug(argc, argv, [] { on_ranks(train_rank); });
}
