#include "tools/run/sample_step.h"

#include <vector>

#include "engine/autograd/ops/ops.h"
#include "engine/core/rng.h"
#include "engine/runtime/logical_device.h"
#include "tools/run/task.h"

namespace lockstep::tools {
namespace {

Variable noise(const nn::ModelData& data, std::size_t batch, Device device) {
  Rng rng(1);
  return Variable(Tensor::uniform(batch_shape(data, batch), -1, 1, rng, DType::float32, device));
}

Tensor labels(std::size_t num_classes, std::size_t batch, Device device) {
  std::vector<std::int64_t> numbers(batch);
  for (std::size_t row = 0; row < batch; ++row) {
    numbers[row] = static_cast<std::int64_t>(row % num_classes);
  }
  return Tensor::from(numbers, {batch}, device);
}

optim::SgdOptions sgd_options() {
  optim::SgdOptions options;
  options.learning_rate = 0.01;
  options.momentum = 0.9;
  return options;
}

}  // namespace

SampleStep::SampleStep(const std::string& model, const nn::ModelData& data, std::size_t batch,
                       Device device)
    : device_(device),
      model_(nn::make_model(model, data, 0, DType::float32, device)),
      optimizer_(model_->parameters(), sgd_options()),
      x_(noise(data, batch, device)),
      targets_(labels(data.num_classes, batch, device)) {}

Variable SampleStep::forward() const {
  return cross_entropy((*model_)(x_), targets_);
}

void SampleStep::run() {
  optimizer_.zero_grad();
  forward().backward();
  optimizer_.step();
}

std::size_t SampleStep::input_bytes() const {
  return x_.value().num_bytes() + targets_.num_bytes();
}

void SampleStep::synchronize() const {
  targets_.stream().synchronize();
}

std::size_t SampleStep::measure_peak_bytes() {
  runtime::MemoryPool& pool = runtime::logical_device(device_).memory();
  pool.reset_peak();
  run();
  return pool.statistics().peak_bytes;
}

}  // namespace lockstep::tools
