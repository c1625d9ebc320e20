#include "tests/engine/parallel/training.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/autograd/ops/ops.h"
#include "engine/core/thread_context.h"
#include "engine/nn/layers.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/bitwise/micro_shards.h"
#include "engine/parallel/data_parallel/data_parallel.h"
#include "engine/parallel/sync_batch_norm.h"
#include "tests/engine/parallel/function_module.h"
#include "tests/support/devices.h"
#include "tests/support/expect_close.h"
#include "tests/support/run_ranks.h"

namespace lockstep::testing {
namespace {

constexpr std::size_t kFeatures = 6;
constexpr std::size_t kHidden = 12;
constexpr std::size_t kClasses = 4;

optim::Sgd make_optimizer(const TrainingCase& training, const nn::Module& module) {
  optim::SgdOptions options;
  options.learning_rate = training.learning_rate;
  options.momentum = training.momentum;
  return optim::Sgd(module.parameters(), options);
}

// Calls gradients(batch) between zero_grad() and step().
template <typename Gradients>
void run_steps(const TrainingCase& training, nn::Module& module, const Gradients& gradients) {
  optim::Sgd optimizer = make_optimizer(training, module);
  for (std::size_t step = 0; step < training.num_steps; ++step) {
    ThreadContext context = thread_context();
    context.step = step;
    context.first_row = 0;
    const ThreadContextScope scope(context);
    optimizer.zero_grad();
    gradients(make_batch(training, step));
    optimizer.step();
  }
}

void scale_gradients(const nn::Module& module, double factor) {
  for (const Variable& parameter : module.parameters()) {
    const TensorView view = parameter.grad().view();
    parameter.grad().backend().scale(parameter.grad().stream(), {view, factor, view});
  }
}

TrainingBatch rows_of(const TrainingBatch& batch, const plan::ScatterPart& part, Device device) {
  return {batch.x.rows(part.offset, part.offset + part.size).to(device),
          batch.labels.rows(part.offset, part.offset + part.size).to(device)};
}

Device device_of_rank(const comm::Communicator& communicator) {
  return test_device(communicator.rank());
}

// Runs train(communicator) on every rank and compares what the ranks end with.
template <typename Train>
Weights train_ranks(int world_size, const Train& train) {
  std::vector<Weights> results(static_cast<std::size_t>(world_size));
  run_ranks(world_size, [&](comm::Communicator& communicator) {
    results[static_cast<std::size_t>(communicator.rank())] = train(communicator);
  });
  for (const Weights& result : results) EXPECT_EQ(result, results[0]) << "the ranks drifted apart";
  return results[0];
}

}  // namespace

TrainingShard shard_of(const TrainingBatch& batch, int rank, int world_size, Device device) {
  const std::size_t num_rows = batch.x.size(0);
  const plan::ScatterPlan plan = plan::scatter_plan(num_rows, static_cast<std::size_t>(world_size));
  const auto index = static_cast<std::size_t>(rank);
  const plan::ScatterPart part =
      index < plan.parts.size() ? plan.parts[index] : plan::ScatterPart{index, num_rows, 0};
  const TrainingBatch mine = rows_of(batch, part, device);
  return {mine.x, mine.labels, static_cast<double>(world_size) / static_cast<double>(num_rows),
          part.offset};
}

Variable sum_loss(const Variable& logits, const Tensor& labels) {
  return cross_entropy(logits, labels, Reduction::sum);
}

std::shared_ptr<nn::Module> make_model(const TrainingCase& training) {
  std::vector<std::shared_ptr<nn::Module>> layers;
  layers.push_back(make_linear(kFeatures, kHidden, 1, training.dtype));
  if (training.batch_norm) {
    nn::BatchNormOptions options;
    options.dtype = training.dtype;
    layers.push_back(std::make_shared<nn::BatchNorm1d>(kHidden, options));
  }
  layers.push_back(std::make_shared<nn::Tanh>());
  if (training.dropout > 0) layers.push_back(std::make_shared<nn::Dropout>(training.dropout, 7, 0));
  layers.push_back(make_linear(kHidden, kClasses, 2, training.dtype));
  return std::make_shared<nn::Sequential>(layers);
}

TrainingBatch make_batch(const TrainingCase& training, std::size_t step) {
  const std::size_t rows = training.batches[step % training.batches.size()];
  Rng rng(1000 + step);
  std::vector<std::int64_t> labels(rows);
  for (std::int64_t& label : labels) label = static_cast<std::int64_t>(rng.below(kClasses));
  return {random_tensor({rows, kFeatures}, step, training.dtype), Tensor::from(labels, {rows})};
}

Weights weights_of(const nn::Module& module) {
  Weights weights;
  for (const Variable& parameter : module.parameters()) {
    weights.push_back(parameter.value().to_vector<double>());
  }
  for (const Tensor& buffer : module.buffers()) weights.push_back(buffer.to_vector<double>());
  return weights;
}

Weights train_on_one_device(const TrainingCase& training) {
  const auto model = make_model(training);
  run_steps(training, *model, [&](const TrainingBatch& batch) {
    cross_entropy((*model)(Variable(batch.x)), batch.labels).backward();
  });
  return weights_of(*model);
}

Weights train_data_parallel(const TrainingCase& training, const std::vector<Device>& devices) {
  const auto model = make_model(training);
  model->to(devices[0]);
  parallel::DataParallelOptions options;
  options.devices = devices;
  options.batch_norm = parallel::BatchNormRows::all;
  parallel::DataParallel wrapper(model, options);
  run_steps(training, *model, [&](const TrainingBatch& batch) {
    const Variable logits = wrapper(Variable(batch.x));
    cross_entropy(logits, batch.labels.to(devices[0])).backward();
  });
  return weights_of(*model);
}

Weights train_ddp_rank(const TrainingCase& training, comm::Communicator& communicator,
                       Device device, const parallel::DdpOptions& options) {
  const auto model = make_model(training);
  model->to(device);
  parallel::sync_batch_norm(*model, communicator);
  parallel::Ddp ddp(model, communicator, options);
  run_steps(training, *model, [&](const TrainingBatch& batch) {
    const TrainingShard mine =
        shard_of(batch, communicator.rank(), communicator.world_size(), device);
    thread_context().first_row = mine.first_row;
    const Variable loss = sum_loss(ddp(Variable(mine.x)), mine.labels);
    loss.backward(Tensor::full({}, mine.weight, loss.dtype(), loss.device()));
  });
  return weights_of(*model);
}

Weights train_ddp(const TrainingCase& training, int world_size,
                  const parallel::DdpOptions& options) {
  return train_ranks(world_size, [&](comm::Communicator& communicator) {
    return train_ddp_rank(training, communicator, device_of_rank(communicator), options);
  });
}

Weights train_bitwise_data_parallel(const TrainingCase& training, std::size_t num_devices) {
  const auto model = make_model(training);
  run_steps(training, *model, [&](const TrainingBatch& batch) {
    parallel::bitwise_data_parallel(*model, cpu_devices(num_devices), sum_loss, batch.x,
                                    batch.labels);
    scale_gradients(*model, 1.0 / static_cast<double>(batch.x.size(0)));
  });
  return weights_of(*model);
}

Weights train_bitwise_ddp_rank(const TrainingCase& training, comm::Communicator& communicator,
                               Device device) {
  const auto rank = static_cast<std::size_t>(communicator.rank());
  const auto world_size = static_cast<std::size_t>(communicator.world_size());
  const auto model = make_model(training);
  model->to(device);
  run_steps(training, *model, [&](const TrainingBatch& batch) {
    const plan::MicroShardPlan plan = plan::micro_shard_plan(batch.x.size(0), world_size);
    const TrainingBatch mine = rows_of(batch, plan.rows_of_device(rank), device);
    const parallel::MicroShardResult result =
        parallel::run_micro_shards(*model, sum_loss, mine.x, mine.labels, plan, rank);
    parallel::bitwise_all_reduce(*model, result, communicator);
    scale_gradients(*model, 1.0 / static_cast<double>(batch.x.size(0)));
  });
  return weights_of(*model);
}

Weights train_bitwise_ddp(const TrainingCase& training, int world_size) {
  return train_ranks(world_size, [&](comm::Communicator& communicator) {
    return train_bitwise_ddp_rank(training, communicator, device_of_rank(communicator));
  });
}

double largest_difference(const Weights& a, const Weights& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].size(), b[i].size());
    for (std::size_t k = 0; k < a[i].size(); ++k) {
      const double difference = std::abs(a[i][k] - b[i][k]);
      if (!(difference <= largest)) largest = difference;
      if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    }
  }
  return largest;
}

}  // namespace lockstep::testing
