#include "tools/run/sample_step.h"

#include <vector>

#include "engine/autograd/ops/ops.h"
#include "engine/core/rng.h"
#include "engine/runtime/logical_device.h"
#include "tools/run/task.h"

namespace lockstep::tools {
namespace {

bool is_text(const nn::ModelData& data) {
  return data.values == nn::ModelData::Values::tokens;
}

// 0, 1, ... num_classes - 1, 0, ...
Tensor classes(std::size_t num_classes, const Shape& shape, Device device) {
  std::vector<std::int64_t> numbers(shape.num_elements());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<std::int64_t>(i % num_classes);
  }
  return Tensor::from(numbers, shape, device);
}

Variable noise(const nn::ModelData& data, std::size_t batch, Device device) {
  const Shape shape = batch_shape(data, batch);
  if (is_text(data)) return Variable(classes(data.num_classes, shape, device));
  Rng rng(1);
  return Variable(Tensor::uniform(shape, -1, 1, rng, DType::float32, device));
}

// One for each row, or for each token of a text.
Tensor labels(const nn::ModelData& data, std::size_t batch, Device device) {
  const std::size_t per_row = is_text(data) ? data.row[0] : 1;
  return classes(data.num_classes, {batch * per_row}, device);
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
      targets_(labels(data, batch, device)),
      logits_(is_text(data) ? Logits::consume : Logits::keep) {}

Variable SampleStep::forward() const {
  return cross_entropy((*model_)(x_), targets_, Reduction::mean, logits_);
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
