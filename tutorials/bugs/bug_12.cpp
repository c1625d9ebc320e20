// A ring all-reduce by hand. Sums are right on every rank, but it is slow when tensors are large.
//
// Run:  bug_12      lockstep doctor -- bug_12
#include "engine/autograd/ops/ops.h"
#include "engine/comm/thread_group.h"
#include "engine/optim/optimizer.h"
#include "tutorials/bugs/lab.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

constexpr int kRingRanks = 4;

// n - 1 times: send the tensor that came last to the right, add the one that comes from the left.
void all_reduce(comm::Communicator& ring, const Tensor& sum) {
  const int n = ring.world_size(), right = (ring.rank() + 1) % n, left = (ring.rank() + n - 1) % n;
  Tensor passing = sum.clone();
  for (int step = 0; step < n - 1; ++step) {
    const Tensor arrived = Tensor::empty_like(sum);
    ring.send(passing, right);
    ring.recv(arrived, left);
    sum += arrived;
    passing = arrived;
  }
}

void train_rank(const Place& place) {
  const auto net = make_net(place.device);
  optim::Sgd sgd(net->parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  const tutorial::Rows digits = load_rows();
  for (int step = 0; step < digits.steps_per_epoch(kBatch) - 1; ++step) {
    const tutorial::Rows mine =
        digits.batch(step, kBatch).shard(place.rank, kRingRanks, place.device);
    sgd.zero_grad();
    scale(mean_loss(*net, mine), 1.0 / kRingRanks).backward();
    for (const Variable& parameter : net->parameters()) {
      all_reduce(place.group, parameter.grad());
    }
    sgd.step();
  }
  report(*net, place);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bugs::run_bug(argc, argv, [] {
    comm::run_ranks(kRingRanks, [](comm::Communicator& group) {
      const int rank = group.rank();
      train_rank({group, rank, {DeviceType::cpu, rank}});
    });
  });
}
