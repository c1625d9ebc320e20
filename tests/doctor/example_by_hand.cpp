// Data parallelism without a wrapper, which is right: weights are broadcast, gradients averaged,
// one all-reduce for each parameter, asynchronously. What mutants.cmake makes wrong in it, the
// doctor has to find.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "datasets/digits.h"
#include "engine/autograd/ops/ops.h"
#include "engine/comm/thread_group.h"
#include "engine/core/error.h"
#include "engine/data/sampler.h"
#include "engine/nn/models.h"
#include "engine/optim/optimizer.h"

namespace {

using namespace lockstep;

constexpr int kRanks = 4;
constexpr std::size_t kEpochs = 2;

void broadcast_weights(const nn::Module& model, comm::Communicator& group) {
  for (const Variable& parameter : model.parameters()) group.broadcast(parameter.value(), 0);
}

void average_gradients(const nn::Module& model, comm::Communicator& group) {
  std::vector<comm::Work> works;
  for (const Variable& parameter : model.parameters()) {
    works.push_back(group.all_reduce(
        parameter.grad(), {.op = comm::ReduceOp::average, .launch = comm::Launch::async}));
  }
  for (const comm::Work& work : works) work.wait();
}

void run_rank(comm::Communicator& group) {
  const Device device{DeviceType::cpu, group.rank()};
  const auto model = nn::make_mlp("mlp:64-24-10:tanh", static_cast<std::uint64_t>(group.rank()));
  model->to(device);
  broadcast_weights(*model, group);
  optim::AdamW adam(model->parameters(), {.learning_rate = 0.01});
  const data::LabelledTensors digits = datasets::load_digits().train;
  const auto world = static_cast<std::size_t>(group.world_size());
  const auto rank = static_cast<std::size_t>(group.rank());
  for (std::size_t epoch = 0; epoch < kEpochs; ++epoch) {
    const std::vector<std::size_t> mine = data::distributed_sampler(
        digits.num_rows(), world, rank, /*seed=*/3, epoch, data::Shuffle::on, data::DropLast::on);
    const std::size_t rows = 25, num_steps = mine.size() / rows;
    for (std::size_t step = 0; step < num_steps; ++step) {
      const auto begin = mine.begin() + static_cast<std::ptrdiff_t>(step * rows);
      const auto [x, labels] = digits.take({begin, begin + rows}, device);
      adam.zero_grad();
      cross_entropy((*model)(Variable(x)), labels).backward();
      average_gradients(*model, group);
      adam.step();
    }
  }
  if (group.rank() == 0) fmt::print("trained\n");
}

}  // namespace

int main() {
  try {
    comm::run_ranks(kRanks, run_rank);
  } catch (const Error& error) {
    fmt::print(stderr, "example: {}\n", error.what());
    return exit_code(error.code());
  }
  return 0;
}
