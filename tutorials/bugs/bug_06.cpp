// Each step adds up the gradients of two micro-batches. After a few steps the ranks have different
// weights.
//
// Run:  bug_06      lockstep doctor -- bug_06
#include "engine/autograd/ops/ops.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/ddp.h"
#include "tutorials/bugs/lab.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

void train_rank(const Place& place) {
  parallel::Ddp net(make_net(place.device), place.group);
  optim::Sgd sgd(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  const tutorial::Rows digits = load_rows();
  const auto half_loss = [&](int micro_batch) {
    const tutorial::Rows rows = digits.batch(micro_batch, kBatch);
    return scale(mean_loss(net, rows.shard(place.rank, kRanks, place.device)), 0.5);
  };
  for (int step = 0; step < 11; ++step) {
    sgd.zero_grad();
    Variable second;
    {
      const auto no_sync = net.no_sync();
      half_loss(2 * step).backward();
      second = half_loss(2 * step + 1);
    }
    second.backward();
    sgd.step();
  }
  report(*net.module(), place);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bugs::run_bug(argc, argv, [] { on_ranks(train_rank); });
}
