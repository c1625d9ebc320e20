#include "tools/check/reference_step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "engine/autograd/ops/ops.h"
#include "engine/core/rng.h"
#include "tools/run/model.h"

namespace lockstep::tools {
namespace {

constexpr std::size_t kNumPieces = 8;

std::shared_ptr<nn::Module> model_with(const TrainingTask& task, Device device,
                                       const KeptTensors& weights) {
  const std::shared_ptr<nn::Module> model = make_model(task, device);
  const auto set = [&](const std::string& name, const Tensor& tensor) {
    const Tensor kept = Tensor::from(values_of(weights, name), tensor.shape(), Device{});
    tensor.copy_from(kept.to(tensor.dtype()));
  };
  for (const auto& [name, parameter] : model->named_parameters()) set(name, parameter.value());
  for (const auto& [name, buffer] : model->named_buffers()) set(name, buffer);
  return model;
}

// Adds the gradient of the summed loss over these rows times the weight, its norms and the loss.
void add_piece(const TrainingTask& task, nn::Module& model, Device device, std::size_t epoch,
               std::span<const std::size_t> rows, double weight, ReferenceGradient& sum) {
  const PlainBatch batch = plain_batch(task, epoch, rows);
  const Tensor x = Tensor::from(batch.features, task.batch_shape(rows.size()), Device{});
  model.zero_grad();
  const Variable loss =
      cross_entropy(model(Variable(x.to(task.batch_dtype()).to(device))),
                    Tensor::from(batch.labels, {batch.labels.size()}, device), Reduction::sum);
  loss.backward(Tensor::full({}, weight, task.dtype, device));
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
                                std::size_t rows_of_piece, double weight) {
  ReferenceGradient sum;
  for (std::size_t begin = 0; begin < rows.size(); begin += rows_of_piece) {
    thread_context().first_row = begin;  // a dropout mask belongs to a row of the batch
    add_piece(task, model, device, epoch,
              rows.subspan(begin, std::min(rows_of_piece, rows.size() - begin)), weight, sum);
    if (begin == 0) sum.statistics = keep_buffers(model);
  }
  return sum;
}

void multiply(ReferenceGradient& gradient, double factor) {
  for (auto& [name, values] : gradient.values) {
    for (double& value : values) value *= factor;
  }
  for (double& size : gradient.sizes) size *= factor;
}

void clip(ReferenceGradient& gradient, double max_norm) {
  double squares = 0;
  for (const auto& [name, values] : gradient.values) squares += std::pow(norm(values), 2);
  multiply(gradient, rules::clip_factor(std::sqrt(squares), max_norm));
}

}  // namespace

double norm(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

namespace {

// Image rows are augmented if that is given.
PlainBatch batch_of(const TrainingTask& task, const data::LabelledRows& data,
                    std::span<const std::size_t> rows, std::optional<std::size_t> epoch) {
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
    if (epoch && !task.augmentation.is_none()) {
      data::augment(data::draw_augmentation(task.augmentation, task.seed, *epoch, row),
                    data.image_shape(), kept, bytes);
    }
    for (const std::uint8_t byte : bytes) batch.features.push_back(value_of(byte));
    batch.labels.push_back(data.labels[row]);
  }
  return batch;
}

// The loss of a row whose label is this one.
double loss_of(std::span<const double> logits, std::int64_t label) {
  const double largest = std::ranges::max(logits);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum) - logits[static_cast<std::size_t>(label)];
}

bool is_right(std::span<const double> logits, std::int64_t label) {
  return std::ranges::max_element(logits) - logits.begin() == label;
}

}  // namespace

PlainBatch plain_batch(const TrainingTask& task, std::size_t epoch,
                       std::span<const std::size_t> rows) {
  return batch_of(task, task.data->train, rows, epoch);
}

double test_result(const TrainingTask& task, Device device, const KeptTensors& state) {
  constexpr std::size_t kRowsOfPass = 256;
  const ThreadContextScope of_one_device({});
  const NoGradScope no_grad;
  const std::shared_ptr<nn::Module> model = model_with(task, device, state);
  model->eval();
  const data::LabelledRows& test = task.data->test;
  const std::size_t num_rows = test.num_rows();
  const std::size_t rows_of_pass = test.is_text() ? task.batch : kRowsOfPass;
  double sum = 0;
  for (std::size_t begin = 0; begin < num_rows; begin += rows_of_pass) {
    std::vector<std::size_t> rows;
    for (std::size_t i = begin; i < std::min(num_rows, begin + rows_of_pass); ++i) {
      rows.push_back(test.is_text() ? i * test.num_features : i);
    }
    const PlainBatch batch = batch_of(task, test, rows, std::nullopt);
    const Tensor x = Tensor::from(batch.features, task.batch_shape(rows.size()), Device{});
    const Variable output = (*model)(Variable(x.to(task.batch_dtype()).to(device)));
    const std::vector<double> logits = output.value().to_vector<double>();
    const std::size_t num_classes = logits.size() / batch.labels.size();
    for (std::size_t i = 0; i < batch.labels.size(); ++i) {
      const std::span<const double> of_label(logits.data() + i * num_classes, num_classes);
      sum += test.is_text() ? loss_of(of_label, batch.labels[i])
                            : static_cast<double>(is_right(of_label, batch.labels[i]));
    }
  }
  return sum / static_cast<double>(num_rows * test.labels_per_row());
}

ReferenceGradient reference_gradient(const TrainingTask& task, Device device,
                                     const KeptTensors& state, std::size_t step,
                                     const std::vector<std::size_t>& rows,
                                     std::size_t rows_of_device, std::size_t num_ranks) {
  const ThreadContextScope of_one_device({.step = step});
  const std::size_t epoch = step / task.steps_per_epoch();
  const std::shared_ptr<nn::Module> model = model_with(task, device, state);
  std::vector<std::size_t> mixed = rows;
  if (task.dropout == 0) {
    const std::vector<std::size_t> places = random_permutation(rows.size(), task.seed);
    std::ranges::transform(places, mixed.begin(), [&](std::size_t place) { return rows[place]; });
  }
  const auto num_labels = static_cast<double>(rows.size() * task.data->train.labels_per_row());
  const double weight = static_cast<double>(num_ranks) / num_labels;
  const auto sum = [&](const std::vector<std::size_t>& of, std::size_t rows_of_piece) {
    return sum_of_pieces(task, *model, device, epoch, of, rows_of_piece, weight);
  };
  const std::size_t rows_of_piece = (rows.size() + kNumPieces - 1) / kNumPieces;
  const bool has_batch_norm = nn::parse_model(task.model).has_batch_norm();
  ReferenceGradient reference =
      has_batch_norm ? sum(rows, task.has_own_statistics() ? rows_of_device : rows.size())
                     : sum(mixed, rows_of_piece);
  if (device.type == DeviceType::cuda && !has_batch_norm) {
    reference.values = sum(mixed, rows_of_device).values;
  }
  reference.mean_loss /= num_labels;
  multiply(reference, 1.0 / static_cast<double>(num_ranks));
  if (task.optimizer.clip_norm) clip(reference, *task.optimizer.clip_norm);
  return reference;
}

namespace {

double gradient_error(const std::vector<double>& found, const std::vector<double>& expected,
                      double size) {
  if (found.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double squares = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    squares += (found[i] - expected[i]) * (found[i] - expected[i]);
  }
  return squares == 0 ? 0 : std::sqrt(squares) / size;
}

}  // namespace

std::vector<TensorError> errors_of(const KeptTensors& gradients, const KeptTensors& statistics,
                                   const ReferenceGradient& reference, double limit) {
  std::vector<TensorError> errors;
  for (std::size_t p = 0; p < reference.values.size(); ++p) {
    const auto& [name, expected] = reference.values[p];
    errors.push_back({"gradients", name,
                      gradient_error(values_of(gradients, name), expected, reference.sizes[p]),
                      limit});
  }
  const KeptTensors expected = statistics_of(reference.statistics, reference.statistics);
  const KeptTensors found = statistics_of(statistics, reference.statistics);
  for (const auto& named : expected) {
    const double error = largest_difference({named}, found).value;
    errors.push_back({"statistics", named.first, error, limit});
  }
  return errors;
}

std::string statistic_against_the_rule(const KeptTensors& before, const ReferenceGradient& after,
                                       const ReferenceGradient& after_larger) {
  constexpr double kKept = 0.9;
  constexpr double kRounding = 1e-4;
  for (const auto& [name, values] : after.statistics) {
    const std::vector<double>& old = values_of(before, name);
    const std::vector<double>& larger = values_of(after_larger.statistics, name);
    const bool is_count = name.ends_with("num_batches_tracked");
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double error = is_count ? values[i] - old[i] - 1 : larger[i] - values[i] - kKept;
      if (!(std::abs(error) <= kRounding * std::max(1.0, std::abs(values[i])))) return name;
    }
  }
  return {};
}

void allow_amplified(std::vector<TensorError>& errors, const ReferenceGradient& reference,
                     const ReferenceGradient& one_bit_off) {
  const std::vector<TensorError> amplified =
      errors_of(one_bit_off.values, one_bit_off.statistics, reference, 0);
  for (std::size_t i = 0; i < errors.size(); ++i) {
    errors[i].limit += kTimesOneBit * amplified[i].error;
  }
}

double gradient_limit(DType dtype, DeviceType device, kernels::MatmulPrecision precision) {
  const bool is_gpu = device == DeviceType::cuda;
  if (dtype == DType::float64) return is_gpu ? 1e-9 : 1e-12;
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

std::optional<WrongElement> find_wrong_element(
    const OptimizerSettings& settings, const rules::Step& step, const std::string& parameter,
    const KeptTensors& before, const KeptTensors& gradients, const KeptTensors& after) {
  std::vector<std::string> names{parameter};
  for (std::size_t k = 0; k < num_state_tensors(settings); ++k) {
    names.push_back(parameter + state_suffix(settings, k));
  }
  const std::vector<double>& gradient = values_of(gradients, parameter);
  if (gradient.empty()) names.resize(1);  // the optimizer skips it
  // By name; no optimizer keeps anything before its first step.
  std::vector<const std::vector<double>*> was, is;
  for (const std::string& name : names) {
    const bool is_kept = step.number > 0 || name == parameter;
    was.push_back(is_kept ? &values_of(before, name) : nullptr);
    is.push_back(&values_of(after, name));
  }
  for (std::size_t i = 0; i < was[0]->size(); ++i) {
    const auto held = [&](std::size_t k) {
      return rules::held(k < was.size() && was[k] ? (*was[k])[i] : 0, step.dtype);
    };
    rules::Element element{held(0), {held(1), held(2)}};
    if (!gradient.empty()) {
      element = rules::updated(settings, step, element, rules::held(gradient[i], step.dtype));
    }
    for (std::size_t k = 0; k < is.size(); ++k) {
      const rules::Sum& expected = k == 0 ? element.weight : element.kept[k - 1];
      const double found = i < is[k]->size() ? (*is[k])[i] : std::nan("");
      if (!rules::is_rounded(found, expected, step.dtype)) {
        return WrongElement{names[k], expected.value, found};
      }
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::tools
