#include "tools/verdict/reference_gradient.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "engine/autograd/ops/ops.h"
#include "engine/core/rng.h"
#include "tools/training/model.h"

namespace lockstep::tools {
namespace {

using Values = std::vector<std::vector<double>>;  // by parameter

constexpr std::size_t kNumPieces = 8;

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

// Of the summed loss over these rows.
Values gradient_of(const TrainingTask& task, nn::Module& model, Device device,
                   std::span<const std::size_t> rows) {
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
  Values gradient;
  for (const Variable& parameter : model.parameters()) {
    gradient.push_back(parameter.grad().to_vector<double>());
  }
  return gradient;
}

double norm(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

ReferenceGradient sum_of_pieces(const TrainingTask& task, nn::Module& model, Device device,
                                std::span<const std::size_t> rows, std::size_t rows_of_piece) {
  ReferenceGradient sum;
  for (std::size_t begin = 0; begin < rows.size(); begin += rows_of_piece) {
    const std::size_t num_rows = std::min(rows_of_piece, rows.size() - begin);
    const Values piece = gradient_of(task, model, device, rows.subspan(begin, num_rows));
    sum.sizes.resize(piece.size());
    sum.values.resize(piece.size());
    for (std::size_t p = 0; p < piece.size(); ++p) {
      sum.sizes[p] += norm(piece[p]);
      sum.values[p].resize(piece[p].size());
      for (std::size_t i = 0; i < piece[p].size(); ++i) sum.values[p][i] += piece[p][i];
    }
  }
  return sum;
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
                                     std::size_t rows_of_device, Clipping clipping) {
  const std::shared_ptr<nn::Module> model = model_with(task, device, weights);
  std::vector<std::size_t> mixed;
  for (const std::size_t place : random_permutation(rows.size(), task.seed)) {
    mixed.push_back(rows[place]);
  }
  const std::size_t rows_of_piece = (rows.size() + kNumPieces - 1) / kNumPieces;
  ReferenceGradient reference = sum_of_pieces(task, *model, device, mixed, rows_of_piece);
  if (device.type == DeviceType::cuda) {
    reference.values = sum_of_pieces(task, *model, device, mixed, rows_of_device).values;
  }
  multiply(reference, 1.0 / static_cast<double>(rows.size()));
  if (clipping == Clipping::on && task.optimizer.clip_norm) {
    clip(reference, *task.optimizer.clip_norm);
  }
  return reference;
}

}  // namespace lockstep::tools
