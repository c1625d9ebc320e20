#include "tools/verdict/reference_step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "engine/autograd/ops/ops.h"
#include "engine/core/rng.h"
#include "tools/training/model.h"

namespace lockstep::tools {
namespace {

constexpr std::size_t kNumPieces = 8;

std::shared_ptr<nn::Module> model_with(const TrainingTask& task, Device device,
                                       const KeptTensors& weights) {
  const std::shared_ptr<nn::Module> model = make_model(task, device);
  for (const auto& [name, parameter] : model->named_parameters()) {
    const Tensor& tensor = parameter.value();
    const Tensor kept = Tensor::from(values_of(weights, name), tensor.shape(), Device{});
    tensor.copy_from(kept.to(tensor.dtype()));
  }
  return model;
}

double norm(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

// Adds the gradient of the summed loss over these rows, its norms and the loss.
void add_piece(const TrainingTask& task, nn::Module& model, Device device, std::size_t epoch,
               std::span<const std::size_t> rows, ReferenceGradient& sum) {
  const PlainBatch batch = plain_batch(task, epoch, rows);
  const Tensor x = Tensor::from(batch.features, task.batch_shape(rows.size()), Device{});
  model.zero_grad();
  const Variable loss =
      cross_entropy(model(Variable(x.to(task.batch_dtype()).to(device))),
                    Tensor::from(batch.labels, {batch.labels.size()}, device), Reduction::sum);
  loss.backward();
  sum.mean_loss += loss.value().item();
  const auto parameters = model.named_parameters();
  sum.sizes.resize(parameters.size());
  sum.values.resize(parameters.size());
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const std::vector<double> piece = parameters[p].second.grad().to_vector<double>();
    sum.sizes[p] += norm(piece);
    auto& [name, values] = sum.values[p];
    name = parameters[p].first;
    values.resize(piece.size());
    for (std::size_t i = 0; i < piece.size(); ++i) values[i] += piece[i];
  }
}

ReferenceGradient sum_of_pieces(const TrainingTask& task, nn::Module& model, Device device,
                                std::size_t epoch, std::span<const std::size_t> rows,
                                std::size_t rows_of_piece) {
  ReferenceGradient sum;
  for (std::size_t begin = 0; begin < rows.size(); begin += rows_of_piece) {
    add_piece(task, model, device, epoch,
              rows.subspan(begin, std::min(rows_of_piece, rows.size() - begin)), sum);
  }
  return sum;
}

void multiply(ReferenceGradient& gradient, double factor) {
  for (auto& [name, values] : gradient.values) {
    for (double& value : values) value *= factor;
  }
  for (double& size : gradient.sizes) size *= factor;
}

// PyTorch's clip_grad_norm_, as engine/optim/clip_grad_norm.h states it.
void clip(ReferenceGradient& gradient, double max_norm) {
  double squares = 0;
  for (const auto& [name, values] : gradient.values) squares += std::pow(norm(values), 2);
  multiply(gradient, std::min(1.0, max_norm / (std::sqrt(squares) + 1e-6)));
}

}  // namespace

PlainBatch plain_batch(const TrainingTask& task, std::size_t epoch,
                       std::span<const std::size_t> rows) {
  const data::LabelledRows& data = task.data->train;
  // Rounds like the kernels: a pixel that is off in its last bit takes sums over ReLU's kink.
  const auto value_of = [&](std::uint8_t byte) {
    const double value = data.scale * byte;
    return task.dtype == DType::float64 ? value : static_cast<float>(value);
  };
  PlainBatch batch;
  for (const std::size_t row : rows) {
    if (data.is_text()) {
      for (std::size_t t = row; t < row + data.num_features; ++t) {
        batch.features.push_back(data.tokens[t]);
        batch.labels.push_back(data.tokens[t + 1]);
      }
      continue;
    }
    const std::span<const std::uint8_t> kept = data.row(row);
    std::vector<std::uint8_t> bytes(kept.begin(), kept.end());
    if (!task.augmentation.is_none()) {
      data::augment(data::draw_augmentation(task.augmentation, task.seed, epoch, row),
                    data.image_shape(), kept, bytes);
    }
    for (const std::uint8_t byte : bytes) batch.features.push_back(value_of(byte));
    batch.labels.push_back(data.labels[row]);
  }
  return batch;
}

ReferenceGradient reference_gradient(const TrainingTask& task, Device device,
                                     const KeptTensors& weights, std::size_t epoch,
                                     const std::vector<std::size_t>& rows,
                                     std::size_t rows_of_device) {
  const ThreadContextScope of_one_device({});
  const std::shared_ptr<nn::Module> model = model_with(task, device, weights);
  std::vector<std::size_t> mixed;
  for (const std::size_t place : random_permutation(rows.size(), task.seed)) {
    mixed.push_back(rows[place]);
  }
  const std::size_t rows_of_piece = (rows.size() + kNumPieces - 1) / kNumPieces;
  const bool has_batch_norm = nn::parse_model(task.model).has_batch_norm();
  ReferenceGradient reference =
      has_batch_norm ? sum_of_pieces(task, *model, device, epoch, rows,
                                     task.has_own_statistics() ? rows_of_device : rows.size())
                     : sum_of_pieces(task, *model, device, epoch, mixed, rows_of_piece);
  if (device.type == DeviceType::cuda && !has_batch_norm) {
    reference.values = sum_of_pieces(task, *model, device, epoch, mixed, rows_of_device).values;
  }
  const auto num_labels = static_cast<double>(rows.size() * task.data->train.labels_per_row());
  reference.mean_loss /= num_labels;
  multiply(reference, 1.0 / num_labels);
  if (task.optimizer.clip_norm) clip(reference, *task.optimizer.clip_norm);
  return reference;
}

LargestDifference largest_error(const KeptTensors& found, const ReferenceGradient& reference) {
  LargestDifference largest{reference.values[0].first, 0};
  for (std::size_t p = 0; p < reference.values.size(); ++p) {
    const auto& [name, expected] = reference.values[p];
    const std::vector<double>& values = values_of(found, name);
    double squares = 0;
    if (values.size() != expected.size()) squares = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < values.size() && i < expected.size(); ++i) {
      squares += (values[i] - expected[i]) * (values[i] - expected[i]);
    }
    const double error = squares == 0 ? 0 : std::sqrt(squares) / reference.sizes[p];
    if (std::isnan(error)) return {name, error};
    if (error > largest.value) largest = {name, error};
  }
  return largest;
}

double gradient_limit(DType dtype, DeviceType device, kernels::MatmulPrecision precision) {
  const bool is_gpu = device == DeviceType::cuda;
  if (dtype == DType::float64) return is_gpu ? 1e-9 : 1e-12;
  if (precision == kernels::MatmulPrecision::bf16) return 3e-2;
  if (!is_gpu) return 1e-5;
  switch (precision) {
    case kernels::MatmulPrecision::highest:
      return 1e-3;
    case kernels::MatmulPrecision::high:
      return 1e-2;
    case kernels::MatmulPrecision::medium:
    case kernels::MatmulPrecision::bf16:
      return 3e-2;
  }
  return 0;
}

std::string state_suffix(const OptimizerSettings& settings, std::size_t index) {
  if (settings.kind == OptimizerKind::sgd) return " momentum";
  return index == 0 ? " moment 1" : " moment 2";
}

double reference_weight_decay(const OptimizerSettings& settings, const Shape& parameter) {
  const bool has_groups = settings.decays == OptimizerSettings::Decays::matrices;
  return has_groups && parameter.num_dims() < 2 ? 0 : settings.weight_decay;
}

KeptTensors updated(const TrainingTask& task, Device device, std::size_t step, double learning_rate,
                    const std::map<std::string, double>& weight_decays, const KeptTensors& before,
                    const KeptTensors& gradients) {
  const ThreadContextScope of_one_device({});
  const OptimizerSettings& settings = task.optimizer;
  // Tensors on the CPU are made in this rank's memory, so that no rank's work counts as another's.
  const Device host = device.type == DeviceType::cpu ? device : Device{};
  const auto tensor = [&](const std::vector<double>& values) {
    return Tensor::from(values, {values.size()}, host).to(task.dtype).to(device);
  };
  std::vector<Variable> parameters;
  std::vector<optim::ParameterGroup> groups;
  for (const auto& [name, gradient] : gradients) {
    Variable& parameter =
        parameters.emplace_back(tensor(values_of(before, name)), RequiresGrad::yes);
    groups.push_back({{parameter}, weight_decays.at(name)});
  }
  const auto optimizer = make_optimizer(settings, groups);
  // Now, since the doctor takes a parameter that has a gradient already for an older one.
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (!gradients[p].second.empty()) parameters[p].set_grad(tensor(gradients[p].second));
  }
  optimizer->set_learning_rate(learning_rate);
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    optim::Optimizer::State state{step, {}};
    for (const auto& [name, values] : before) {
      if (name.starts_with(gradients[p].first + " ")) state.tensors.push_back(tensor(values));
    }
    optimizer->load_state(p, state);
  }
  optimizer->step();
  KeptTensors after;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const std::string& name = gradients[p].first;
    after.emplace_back(name, parameters[p].value().to_vector<double>());
    const std::vector<Tensor> tensors = optimizer->state(p).tensors;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      after.emplace_back(name + state_suffix(settings, i), tensors[i].to_vector<double>());
    }
  }
  return after;
}

}  // namespace lockstep::tools
