// The ranks split the data set once, by rows, and then each cuts its own batches until it has no
// more rows. Rank 0 has 768 of them, rank 1 has 732.
//
// Run:  bug_09_uneven_batches [--fixed]      lockstep doctor -- bug_09_uneven_batches
#include <algorithm>

#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/ddp.h"
#include "tutorials/bugs/lab.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

constexpr int kOwnBatch = 32;

void train_rank(const Place& place, Version version) {
  parallel::Ddp net(make_net(place.device), place.group);
  optim::Sgd sgd(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  const tutorial::Rows digits = load_rows();
  const tutorial::Rows mine =
      place.rank == 0 ? digits.part(0, 768, place.device) : digits.part(768, 1500, place.device);
  int num_steps = mine.count() / kOwnBatch;  // 24 on rank 0, 22 on rank 1
  if (version == Version::fixed) num_steps = std::min(num_steps, 732 / kOwnBatch);
  for (int step = 0; step < num_steps; ++step) {
    sgd.zero_grad();
    mean_loss(net, mine.batch(step, kOwnBatch)).backward();
    sgd.step();
  }
  report(*net.module(), place);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bugs::run_bug(argc, argv, [](lockstep::bugs::Version version) {
    on_ranks([&](const Place& place) { train_rank(place, version); });
  });
}
