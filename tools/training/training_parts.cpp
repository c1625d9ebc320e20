#include "tools/training/training_parts.h"

#include <algorithm>
#include <cmath>

#include "engine/core/error.h"
#include "engine/optim/adamw.h"
#include "engine/optim/sgd.h"

namespace lockstep::tools {

std::unique_ptr<optim::Optimizer> make_optimizer(const OptimizerSettings& settings,
                                                 const std::vector<Variable>& parameters) {
  if (settings.kind == OptimizerKind::adamw) {
    optim::AdamWOptions options;
    options.learning_rate = settings.learning_rate;
    options.weight_decay = settings.weight_decay;
    return std::make_unique<optim::AdamW>(parameters, options);
  }
  optim::SgdOptions options;
  options.learning_rate = settings.learning_rate;
  options.momentum = settings.momentum;
  options.weight_decay = settings.weight_decay;
  if (settings.momentum_kind == OptimizerSettings::Momentum::nesterov) {
    options.kind = optim::SgdOptions::Kind::nesterov;
  }
  return std::make_unique<optim::Sgd>(parameters, options);
}

data::EpochSampler make_sampler(const TrainingTask& task, std::size_t world_size,
                                std::size_t rank) {
  data::SamplerOptions options;
  options.num_samples = task.data->train.num_rows();
  options.batch_size = task.batch;
  options.seed = task.seed;
  options.shuffle = task.shuffle;
  options.world_size = world_size;
  options.rank = rank;
  if (task.sampler == Sampler::torch) {
    return [options](std::uint64_t epoch) { return data::torch_batches(options, epoch); };
  }
  if (task.summation == Summation::bitwise) {
    return [options](std::uint64_t epoch) { return data::micro_shard_batches(options, epoch); };
  }
  return [options](std::uint64_t epoch) { return data::exact_batches(options, epoch); };
}

std::unique_ptr<data::DataLoader> make_loader(const TrainingTask& task, std::size_t world_size,
                                              std::size_t rank, Device device) {
  return std::make_unique<data::DataLoader>(
      std::shared_ptr<const data::LabelledRows>(task.data, &task.data->train),
      make_sampler(task, world_size, rank), data::DataLoaderOptions{device, task.dtype, 32});
}

BatchMemory::BatchMemory(const TrainingTask& task, std::size_t num_rows, Device device)
    : x(Tensor::empty({num_rows, task.data->train.num_features}, task.dtype, device)),
      labels(Tensor::empty({num_rows}, DType::int64, device)) {}

std::size_t rows_of_full_batch(const TrainingTask& task) {
  return std::min(task.batch, task.data->train.num_rows());
}

void require_finite(double loss, std::size_t step, int rank) {
  require(std::isfinite(loss), ErrorCode::Numeric, "train",
          "the loss is {} at step {} on rank {}; training stopped, try a smaller --lr",
          std::isnan(loss) ? "nan" : "infinite", step, rank);
}

}  // namespace lockstep::tools
