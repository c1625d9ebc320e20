#include "tools/check/differences.h"

#include <algorithm>
#include <cmath>

#include "engine/autograd/ops/ops.h"
#include "engine/core/rng.h"
#include "engine/core/thread_context.h"
#include "tools/check/reference_step.h"

namespace lockstep::tools {
namespace {

constexpr double kStep = 1e-7;         // e
constexpr double kAway = 0.01;         // how far a weight is moved away from kinks
constexpr double kTolerance = 3e-3;    // relative to the gradient's norm
constexpr double kRounding = 1e-6;     // rounding of a slope, for a loss of 1
constexpr double kLargestScale = 100;  // largest step, where a gradient is small
constexpr std::size_t kNumPoints = 3;
constexpr std::size_t kManyWeights = std::size_t{1} << 18;
constexpr std::size_t kMostWeights = std::size_t{1} << 25;

// Uniform in [-1, 1), element by element: from a table, since a generator would take longer than a
// pass through the model. Its length is a prime number, so no row of a weight repeats another.
class Direction {
 public:
  Direction(const std::vector<double>& table, std::size_t begin)
      : table_(table), place_(begin % table.size()) {}
  double next() {
    if (place_ == table_.size()) place_ = 0;
    return table_[place_++];
  }

 private:
  const std::vector<double>& table_;
  std::size_t place_;
};

// A model near its weights, with its gradient there.
class Slopes {
 public:
  Slopes(nn::Module& model, const KeptTensors& weights, const std::function<Variable()>& loss,
         std::uint64_t seed)
      : loss_(loss), parameters_(model.named_parameters()), table_(4093) {
    Rng rng(seed);
    for (double& number : table_) number = rng.uniform(-1, 1);
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      point_.push_back(values_of(weights, parameters_[p].first));
      Direction away(table_, 1000 * p + 500);
      for (double& value : point_[p]) value += kAway * away.next();
      move(p, 0);
    }
    model.zero_grad();
    loss_().backward();
    for (const auto& [name, parameter] : parameters_) {
      const Tensor& gradient = parameter.grad();
      norms_.push_back(gradient.defined() ? norm(gradient.to_vector<double>()) : 0);
    }
  }

  std::size_t num_parameters() const { return parameters_.size(); }

  // The parameters are moved together. Empty if the slopes agree.
  std::optional<WrongGradient> compare(const std::vector<std::size_t>& group) {
    double largest = 0;
    for (const std::size_t p : group) largest = std::max(largest, norms_[p]);
    // So that each weighs as much, however small its gradient is.
    const auto scale_of = [&](std::size_t p) {
      return largest == 0 ? 1 : std::min(kLargestScale, largest / norms_[p]);
    };
    WrongGradient slopes{parameters_[group[0]].first};
    double squares = 0;
    for (const std::size_t p : group) {
      if (norms_[p] == 0) continue;
      Direction direction(table_, 1000 * p);
      double slope = 0;
      for (const double value : parameters_[p].second.grad().to_vector<double>()) {
        slope += direction.next() * value;
      }
      slopes.by_gradient += scale_of(p) * slope;
      squares += std::pow(scale_of(p) * norms_[p], 2);
    }
    const auto loss_at = [&](double distance) {
      for (const std::size_t p : group) move(p, distance * scale_of(p));
      const NoGradScope no_grad;
      return loss_().item();
    };
    const double above = loss_at(kStep);
    const double below = loss_at(-kStep);
    for (const std::size_t p : group) move(p, 0);
    slopes.by_difference = (above - below) / (2 * kStep);
    const double tolerance =
        kTolerance * std::sqrt(squares) + kRounding * std::max(1.0, std::abs(above));
    // A loss that is not finite is the run's own failure.
    const bool agree = !(std::abs(slopes.by_difference - slopes.by_gradient) > tolerance);
    return agree ? std::nullopt : std::optional(slopes);
  }

 private:
  // Sets a parameter to the point, moved by so far.
  void move(std::size_t p, double distance) {
    const Tensor& tensor = parameters_[p].second.value();
    const Tensor moved = Tensor::empty(tensor.shape(), DType::float64, Device{});
    const std::span<double> values = moved.host<double>();
    Direction direction(table_, 1000 * p);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = point_[p][i] + distance * direction.next();
    }
    tensor.copy_from(moved);
  }

  const std::function<Variable()>& loss_;
  std::vector<nn::NamedParameter> parameters_;
  std::vector<std::vector<double>> point_;
  std::vector<double> table_;
  std::vector<double> norms_;  // the gradients' norms
};

// If a group is wrong, each of its parameters is looked at.
std::optional<WrongGradient> compare_groups(Slopes& slopes, std::size_t num_groups) {
  num_groups = std::min(num_groups, slopes.num_parameters());
  for (std::size_t first = 0; first < num_groups; ++first) {
    std::vector<std::size_t> group;
    for (std::size_t p = first; p < slopes.num_parameters(); p += num_groups) group.push_back(p);
    const auto wrong = slopes.compare(group);
    if (!wrong) continue;
    if (group.size() == 1) return wrong;
    for (const std::size_t p : group) {
      if (const auto alone = slopes.compare({p})) return alone;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<WrongGradient> find_wrong_gradient(nn::Module& model, const KeptTensors& weights,
                                                 const std::function<Variable()>& loss,
                                                 std::size_t num_groups, std::uint64_t seed) {
  std::optional<WrongGradient> wrong;
  for (std::size_t point = 0; point < kNumPoints; ++point) {
    Slopes slopes(model, weights, loss, seed + point);
    wrong = compare_groups(slopes, num_groups);
    if (!wrong) break;
  }
  return wrong;
}

std::optional<WrongGradient> find_wrong_gradient(const TrainingTask& task, const nn::Module& model,
                                                 Device device, const KeptTensors& weights,
                                                 const std::vector<std::size_t>& rows) {
  std::size_t num_weights = 0;
  for (const auto& [name, values] : weights) num_weights += values.size();
  if (num_weights > kMostWeights) return std::nullopt;
  const ThreadContextScope of_one_device({});
  const std::shared_ptr<nn::Module> exact = model.clone();
  exact->to(DType::float64);
  TrainingTask exact_task = task;
  exact_task.dtype = DType::float64;
  // A step is three passes over all rows, and a pass in float64 takes at least twice as long.
  const std::size_t num_rows =
      std::min(rows.size(), std::clamp<std::size_t>(rows.size() / 16, 2, 8));
  // Moving many weights takes longer than these passes.
  const std::size_t num_groups =
      num_weights > kManyWeights ? 1 : std::max<std::size_t>(1, rows.size() / num_rows / 4);
  const PlainBatch batch = plain_batch(exact_task, 0, std::span(rows).first(num_rows));
  const Tensor x = Tensor::from(batch.features, exact_task.batch_shape(num_rows), Device{})
                       .to(exact_task.batch_dtype())
                       .to(device);
  const Tensor labels = Tensor::from(batch.labels, {batch.labels.size()}, device);
  const auto loss = [&] { return cross_entropy((*exact)(Variable(x)), labels); };
  return find_wrong_gradient(*exact, weights, loss, num_groups, task.seed);
}

}  // namespace lockstep::tools
