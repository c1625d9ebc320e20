// Four ranks, two on each of two hosts (played here). The same program was right on one host. With
// GPUs it would fail on the second one: "invalid device ordinal".
//
// Run:  bug_16      lockstep doctor -- bug_16
#include "engine/core/error.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/ddp.h"
#include "tutorials/bugs/lab.h"
#include "tutorials/ranks.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

void be_a_rank() {
  tutorial::RankProcess me;
  const Device device{DeviceType::cpu, me.rank()};
  const Place place{me.group(), me.rank(), device};
  parallel::Ddp net(make_net(device), me.group());
  optim::Sgd sgd(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  const tutorial::Rows digits = load_rows();
  for (int step = 0; step < digits.steps_per_epoch(kBatch) - 1; ++step) {
    sgd.zero_grad();
    mean_loss(net, digits.batch(step, kBatch).shard(place.rank, me.world_size(), device))
        .backward();
    sgd.step();
  }
  report(*net.module(), place);
}

void run() {
  if (tutorial::is_rank()) return be_a_rank();
  require(tutorial::run_as_hosts(/*num_hosts=*/2, /*ranks_per_host=*/2), ErrorCode::State, "ranks",
          "some did not end well");
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bugs::run_bug(argc, argv, run);
}
