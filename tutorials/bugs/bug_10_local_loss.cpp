// Training is right. Rank 0 prints the loss of the last batch of each epoch, and a plot is made of
// it.
//
// Run:  bug_10_local_loss [--fixed]      lockstep doctor -- bug_10_local_loss
#include <fmt/format.h>

#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/ddp.h"
#include "tutorials/bugs/lab.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

double mean_over_ranks(double value, comm::Communicator& group) {
  const Tensor all = Tensor::from(std::vector<double>{value}, {1}, Device{});
  group.all_reduce(all, {.op = comm::ReduceOp::average});
  return all.item();
}

void train_rank(const Place& place, Version version) {
  parallel::Ddp net(make_net(place.device), place.group);
  optim::Sgd sgd(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  const tutorial::Rows digits = load_rows().part(0, 1472);  // 23 batches, all as large
  for (int epoch = 0; epoch < 4; ++epoch) {
    double loss = 0;
    for (int step = 0; step < digits.steps_per_epoch(kBatch); ++step) {
      const tutorial::Rows batch = digits.batch(step, kBatch);
      sgd.zero_grad();
      const Variable mean = mean_loss(net, batch.shard(place.rank, kRanks, place.device));
      mean.backward();
      sgd.step();
      loss = mean.value().item();
    }
    if (version == Version::fixed) loss = mean_over_ranks(loss, place.group);
    if (place.rank == 0) fmt::print("epoch {}  loss {:.4f}\n", epoch, loss);
  }
  report(*net.module(), place);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bugs::run_bug(argc, argv, [](lockstep::bugs::Version version) {
    on_ranks([&](const Place& place) { train_rank(place, version); });
  });
}
