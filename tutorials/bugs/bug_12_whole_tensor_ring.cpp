// A ring all-reduce by hand: what comes from the left is added and passed on to the right. Sums are
// right, on every rank.
//
// Run:  bug_12_whole_tensor_ring [--fixed]      lockstep doctor -- bug_12_whole_tensor_ring
#include "engine/autograd/ops/ops.h"
#include "engine/comm/thread_group.h"
#include "engine/optim/optimizer.h"
#include "engine/plan/collective_plan.h"
#include "tutorials/bugs/lab.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

constexpr int kRingRanks = 4;

// n - 1 times: send the tensor that came last to the right, add the one that comes from the left.
void pass_whole_tensors(comm::Communicator& ring, const Tensor& sum) {
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

// One chunk for each rank: n - 1 steps add, n - 1 more hand the finished chunks round.
void pass_chunks(comm::Communicator& ring, const Tensor& sum) {
  const int n = ring.world_size(), me = ring.rank();
  const auto chunk = [&](int number) {
    const auto part = plan::even_chunk(sum.num_elements(), n, (number + 2 * n) % n);
    return sum.slice(part.offset, {part.count});
  };
  for (int step = 0; step < 2 * (n - 1); ++step) {
    const Tensor mine = chunk(me - step - 1), next = chunk(me - step - 2);
    const Tensor arrived = Tensor::empty_like(next);
    ring.send(mine, (me + 1) % n);
    ring.recv(arrived, (me + n - 1) % n);
    if (step < n - 1) next += arrived;
    if (step >= n - 1) next.copy_from(arrived);
  }
}

void train_rank(const Place& place, Version version) {
  const auto net = make_net(place.device);
  optim::Sgd sgd(net->parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  const tutorial::Rows digits = load_rows();
  for (int step = 0; step < digits.steps_per_epoch(kBatch) - 1; ++step) {
    const tutorial::Rows mine =
        digits.batch(step, kBatch).shard(place.rank, kRingRanks, place.device);
    sgd.zero_grad();
    scale(mean_loss(*net, mine), 1.0 / kRingRanks).backward();
    for (const Variable& parameter : net->parameters()) {
      (version == Version::fixed ? pass_chunks : pass_whole_tensors)(place.group, parameter.grad());
    }
    sgd.step();
  }
  report(*net, place);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bugs::run_bug(argc, argv, [](lockstep::bugs::Version version) {
    comm::run_ranks(kRingRanks, [&](comm::Communicator& group) {
      const int rank = group.rank();
      train_rank({group, rank, {DeviceType::cpu, rank}}, version);
    });
  });
}
