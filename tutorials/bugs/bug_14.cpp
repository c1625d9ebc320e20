// The learning rate falls along half a cosine. The network learns in the first steps, and then
// hardly any more.
//
// Run:  bug_14      lockstep doctor -- bug_14
#include "engine/optim/optimizer.h"
#include "engine/optim/schedule.h"
#include "engine/parallel/ddp/ddp.h"
#include "tutorials/bugs/lab.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

constexpr double kRate = 0.1;

void train_rank(const Place& place) {
  parallel::Ddp net(make_net(place.device), place.group);
  optim::Sgd sgd(net.parameters(), {.learning_rate = kRate, .momentum = 0.9});
  const tutorial::Rows digits = load_rows();
  const int num_steps = digits.steps_per_epoch(kBatch) - 1;
  const optim::Schedule schedule = optim::parse_schedule("cosine", num_steps, /*warmup_steps=*/0);
  for (int step = 0; step < num_steps; ++step) {
    sgd.set_learning_rate(schedule.learning_rate(sgd.learning_rate(), step));
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
