// few_rows ROWS...: a training in which rank r has that many rows in each step, and the mean of its
// own loss is averaged over all ranks: few_rows 1 1 1 0 is what becomes of three rows on four
// ranks.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "datasets/digits.h"
#include "engine/autograd/ops/ops.h"
#include "engine/comm/thread_group.h"
#include "engine/core/error.h"
#include "engine/nn/models.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/ddp.h"

namespace {

using namespace lockstep;

void run_rank(comm::Communicator& group, const std::vector<std::size_t>& num_rows) {
  const Device device{DeviceType::cpu, group.rank()};
  const auto model = nn::make_mlp("mlp:64-24-10", 0);
  model->to(device);
  parallel::Ddp net(model, group);
  optim::Sgd sgd(net.parameters(), {.learning_rate = 0.05});
  const data::LabelledTensors digits = datasets::load_digits().train;
  const auto mine = num_rows.begin() + group.rank();
  const std::size_t of_all = std::accumulate(num_rows.begin(), num_rows.end(), std::size_t{0});
  for (std::size_t step = 0; step < 4; ++step) {
    std::vector<std::size_t> rows(*mine);
    std::iota(rows.begin(), rows.end(),
              step * of_all + std::accumulate(num_rows.begin(), mine, std::size_t{0}));
    const data::LabelledTensors batch = digits.take(rows, device);
    sgd.zero_grad();
    cross_entropy(net(Variable(batch.x)), batch.labels).backward();
    sgd.step();
  }
  if (group.rank() == 0) fmt::print("trained\n");
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::size_t> num_rows;
  for (int i = 1; i < argc; ++i) num_rows.push_back(std::strtoul(argv[i], nullptr, 10));
  try {
    comm::run_ranks(argc - 1, [&](comm::Communicator& group) { run_rank(group, num_rows); });
  } catch (const Error& error) {
    fmt::print(stderr, "few_rows: {}\n", error.what());
    return exit_code(error.code());
  }
  return 0;
}
