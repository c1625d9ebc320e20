#include "tutorials/training.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "datasets/synthetic.h"
#include "engine/autograd/ops/ops.h"
#include "engine/comm/thread_group.h"
#include "engine/core/error.h"
#include "engine/nn/models.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/data_parallel/data_parallel.h"
#include "engine/parallel/ddp/ddp.h"
#include "engine/runtime/device_span.h"
#include "engine/trace/observer.h"
#include "simulate/slow_motion/simulated_link.h"

namespace lockstep::tutorial {
namespace {

using data::LabelledTensors;

constexpr int kRows = 4096;  // that differ; a larger batch has them several times

Device cpu_device(int index) {
  return {DeviceType::cpu, index};
}

void train_step(nn::Module& net, const LabelledTensors& rows, optim::Sgd& sgd) {
  using enum trace::Category;
  runtime::Stream& stream = rows.x.stream();
  sgd.zero_grad();
  Variable loss;
  {
    const runtime::WorkSpan part(stream, trace::Lane::compute, forward, "forward");
    loss = cross_entropy(net(rows.x), rows.labels);
  }
  {
    const runtime::WorkSpan part(stream, trace::Lane::compute, backward, "backward");
    loss.backward();
  }
  sgd.step();
}

void train_steps(nn::Module& net, const LabelledTensors& rows, int num_steps,
                 const std::function<void()>& after_step) {
  optim::Sgd sgd(net.parameters(), {.learning_rate = 0.05, .momentum = 0.9});
  for (int step = 0; step < num_steps; ++step) {
    record_step(step, rows.x, [&] { train_step(net, rows, sgd); });
    if (after_step) after_step();
  }
}

}  // namespace

void record_step(int number, const Tensor& on, const std::function<void()>& step) {
  runtime::WorkSpan span(on.stream(), trace::Lane::host, trace::Category::step, "step");
  span.set_sequence(number);
  step();
}

bool is_ddp(const Training& training) {
  return training.num_devices > 1 && training.strategy == predict::Strategy::ddp;
}

std::vector<LabelledTensors> make_rows(const Training& training) {
  const std::vector<std::size_t> sizes = nn::parse_mlp(training.model).sizes;
  const LabelledTensors some = data::to_tensors(datasets::make_synthetic_rows(
      {static_cast<std::size_t>(std::min(kRows, training.batch)), sizes.front(), sizes.back()}, 0,
      /*seed=*/0));
  const int num_ranks = is_ddp(training) ? training.num_devices : 1;
  require(training.batch % num_ranks == 0, ErrorCode::Usage, "--batch",
          "expected a multiple of {} devices, found {} rows", num_ranks, training.batch);
  trace::Observer* const observer = trace::observer();
  if (observer != nullptr && training.batch > kRows) {
    observer->fact(
        "intended",
        {{"invariant", "own-rows"},
         {"reason", "random rows, of which ranks may have the same: only the time counts"}});
  }
  std::vector<LabelledTensors> rows;
  for (int rank = 0; rank < num_ranks; ++rank) {
    std::vector<std::size_t> numbers(training.batch / num_ranks);
    std::iota(numbers.begin(), numbers.end(), rank * numbers.size());
    for (std::size_t& number : numbers) number %= some.num_rows();
    rows.push_back(some.take(numbers, cpu_device(rank)));
  }
  return rows;
}

std::vector<Tensor> train(const Training& training, const std::vector<LabelledTensors>& rows,
                          int num_steps, const std::function<void()>& after_step) {
  std::shared_ptr<nn::Module> first;
  const auto make_model = [&](int rank) {
    const std::shared_ptr<nn::Module> model = nn::make_mlp(training.model, /*seed=*/0);
    model->to(cpu_device(rank));
    if (rank == 0) first = model;
    return model;
  };
  if (is_ddp(training)) {
    const auto train_rank = [&](comm::Communicator& group) {
      const int rank = group.rank();
      parallel::Ddp net(make_model(rank), group, training.ddp);
      train_steps(net, rows[rank], num_steps, rank == 0 ? after_step : nullptr);
    };
    comm::run_ranks(training.num_devices, train_rank,
                    slow_motion::with_simulated_links(training.num_devices));
  } else {
    const trace::TrackScope track(0);
    parallel::DataParallelOptions options;
    for (int i = 0; i < training.num_devices; ++i) options.devices.push_back(cpu_device(i));
    parallel::DataParallel net(make_model(0), options);
    train_steps(net, rows[0], num_steps, after_step);
  }
  std::vector<Tensor> weights;
  for (const Variable& parameter : first->parameters()) weights.push_back(parameter.value());
  return weights;
}

}  // namespace lockstep::tutorial
