#include "tools/verdict/reference_gradient.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "engine/autograd/ops/ops.h"
#include "engine/core/rng.h"
#include "tools/training/trained_model.h"

namespace lockstep::tools {
namespace {

using Values = std::vector<std::vector<double>>;  // by parameter

std::shared_ptr<nn::Module> model_with(const TrainingTask& task, Device device,
                                       const KeptTensors& weights) {
  const std::shared_ptr<nn::Module> model = make_model(task, device);
  nn::StateDict state;
  for (const auto& [name, tensor] : nn::state_dict(*model)) {
    const Tensor kept = Tensor::from(values_of(weights, name), tensor.shape(), Device{});
    state.emplace_back(name, kept.to(tensor.dtype()));
  }
  nn::load_state_dict(*model, state);
  return model;
}

// Adds the gradient of the summed loss over these rows.
void add_gradient(const TrainingTask& task, nn::Module& model, Device device,
                  std::span<const std::size_t> rows, Values& sum) {
  const data::LabelledRows& data = task.data->train;
  std::vector<double> features;  // rounded to the task's dtype, as the kernels round products
  std::vector<std::int64_t> labels;
  for (const std::size_t row : rows) {
    for (const std::uint8_t byte : data.row(row)) {
      features.push_back(static_cast<double>(data.scale) * byte);
    }
    labels.push_back(data.labels[row]);
  }
  const Tensor x = Tensor::from(features, {rows.size(), data.num_features}, Device{});
  model.zero_grad();
  cross_entropy(model(Variable(x.to(task.dtype).to(device))),
                Tensor::from(labels, {labels.size()}, device), Reduction::sum)
      .backward();
  const std::vector<Variable> parameters = model.parameters();
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const std::vector<double> part = parameters[p].grad().to_vector<double>();
    sum[p].resize(part.size());
    for (std::size_t i = 0; i < part.size(); ++i) sum[p][i] += part[i];
  }
}

double norm(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

void multiply(ReferenceGradient& gradient, double factor) {
  for (std::vector<double>& values : gradient.values) {
    for (double& value : values) value *= factor;
  }
  for (double& size : gradient.sizes) size *= factor;
}

// PyTorch's clip_grad_norm_, as engine/optim/clip_grad_norm.h states it.
void clip(ReferenceGradient& gradient, double max_norm) {
  double squares = 0;
  for (const std::vector<double>& values : gradient.values) {
    for (const double value : values) squares += value * value;
  }
  multiply(gradient, std::min(1.0, max_norm / (std::sqrt(squares) + 1e-6)));
}

}  // namespace

std::vector<std::size_t> global_rows(const TrainingTask& task, std::size_t epoch,
                                     std::size_t step_of_epoch) {
  const std::vector<std::size_t> order =
      data::epoch_order(task.data->train.num_rows(), task.seed, epoch, task.shuffle);
  const std::size_t begin = step_of_epoch * task.batch;
  const std::size_t end = std::min(begin + task.batch, order.size());
  return {order.begin() + static_cast<std::ptrdiff_t>(begin),
          order.begin() + static_cast<std::ptrdiff_t>(end)};
}

ReferenceGradient reference_gradient(const TrainingTask& task, Device device,
                                     const KeptTensors& weights,
                                     const std::vector<std::size_t>& rows,
                                     std::size_t max_piece_rows, Clipping clipping) {
  const std::shared_ptr<nn::Module> model = model_with(task, device, weights);
  std::vector<std::size_t> mixed;
  for (const std::size_t place : random_permutation(rows.size(), task.seed)) {
    mixed.push_back(rows[place]);
  }
  const std::span<const std::size_t> all(mixed);
  const std::size_t middle = (rows.size() + 1) / 2;
  ReferenceGradient reference;
  reference.values.resize(model->parameters().size());
  reference.sizes.resize(reference.values.size());
  for (const auto half : {all.subspan(0, middle), all.subspan(middle)}) {
    Values sum(reference.values.size());
    for (std::size_t begin = 0; begin < half.size(); begin += max_piece_rows) {
      add_gradient(task, *model, device,
                   half.subspan(begin, std::min(max_piece_rows, half.size() - begin)), sum);
    }
    for (std::size_t p = 0; p < sum.size(); ++p) {
      reference.sizes[p] += norm(sum[p]);
      reference.values[p].resize(std::max(reference.values[p].size(), sum[p].size()));
      for (std::size_t i = 0; i < sum[p].size(); ++i) reference.values[p][i] += sum[p][i];
    }
  }
  multiply(reference, 1.0 / static_cast<double>(rows.size()));
  if (clipping == Clipping::on && task.optimizer.clip_norm) {
    clip(reference, *task.optimizer.clip_norm);
  }
  return reference;
}

}  // namespace lockstep::tools
