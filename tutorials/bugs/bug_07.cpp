// Each step adds up the gradients of two micro-batches. After a few steps the ranks have different
// weights.
//
// Run:  bug_07      lockstep doctor -- bug_07
#include "engine/autograd/ops/ops.h"
#include "engine/optim/optimizer.h"
#include "tutorials/bugs/lab.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

void train_rank(const Place& place) {
  const auto net = make_net(place.device);
  optim::Sgd sgd(net->parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  const tutorial::Rows digits = load_rows();
  for (int step = 0; step < 11; ++step) {
    sgd.zero_grad();
    for (int micro = 0; micro < 2; ++micro) {
      const tutorial::Rows rows = digits.batch(2 * step + micro, kBatch);
      scale(mean_loss(*net, rows.shard(place.rank, kRanks, place.device)), 0.5).backward();
      if (micro == 0) average_gradients(*net, place.group);
    }
    sgd.step();
  }
  report(*net, place);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bugs::run_bug(argc, argv, [] { on_ranks(train_rank); });
}
