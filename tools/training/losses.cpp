#include "tools/training/losses.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/runtime/cuda_device.h"

namespace lockstep::tools {
namespace {

// The name of the first one with a value that is not a finite number; empty where there is none.
std::string first_not_finite(const nn::StateDict& weights) {
  for (const auto& [name, tensor] : weights) {
    if (!is_floating_point(tensor.dtype())) continue;
    const std::vector<double> values = tensor.to_vector<double>();
    if (!std::ranges::all_of(values, [](double value) { return std::isfinite(value); }))
      return name;
  }
  return {};
}

}  // namespace

void LossLog::push(std::size_t step, std::size_t num_rows, const Tensor& sum) {
  if (sum.device().type == DeviceType::cpu) {
    on_loss_({step, num_rows, sum.item()});
    return;
  }
  if (num_pushed_ - num_reported_ == kMaxLate) report_oldest();
  Pending& pending = pending_[num_pushed_++ % kMaxLate];
  pending.loss = {step, num_rows, 0};
  if (!pending.pinned.defined() || pending.pinned.dtype() != sum.dtype()) {
    pending.pinned = Tensor::empty_pinned({}, sum.dtype());
    pending.pinned.storage()->record_use(sum.stream());  // an error may leave copies on their way
  }
  runtime::copy_on_cuda_stream(sum.stream(), pending.pinned.raw(), sum.raw(), sum.num_bytes());
  pending.arrived = sum.stream().record();
  while (num_reported_ < num_pushed_ && pending_[num_reported_ % kMaxLate].arrived->has_passed()) {
    report_oldest();
  }
}

void LossLog::drain() {
  while (num_reported_ < num_pushed_) report_oldest();
}

void LossLog::report_oldest() {
  Pending& oldest = pending_[num_reported_++ % kMaxLate];
  oldest.arrived->wait();
  oldest.loss.sum = oldest.pinned.item();
  on_loss_(oldest.loss);
}

void LossCurve::add(const StepLoss& loss) {
  while (loss.step / steps_per_point_ >= kMostPoints) {
    for (std::size_t i = 0; 2 * i < points_.size(); ++i) {
      const Point second = 2 * i + 1 < points_.size() ? points_[2 * i + 1] : Point{};
      points_[i] = {points_[2 * i].sum + second.sum, points_[2 * i].num_rows + second.num_rows};
    }
    points_.resize((points_.size() + 1) / 2);
    steps_per_point_ *= 2;
  }
  const std::size_t index = loss.step / steps_per_point_;
  if (index >= points_.size()) points_.resize(index + 1);
  points_[index].sum += loss.sum;
  points_[index].num_rows += static_cast<double>(loss.num_rows);
}

std::vector<double> LossCurve::sums_and_rows() const {
  std::vector<double> numbers;
  for (const Point& point : points_) numbers.push_back(point.sum);
  for (const Point& point : points_) numbers.push_back(point.num_rows);
  return numbers;
}

ThinnedLosses thinned_losses(std::size_t steps_per_point,
                             const std::vector<double>& sums_and_rows) {
  ThinnedLosses losses{steps_per_point, {}};
  const std::size_t num_points = sums_and_rows.size() / 2;
  for (std::size_t i = 0; i < num_points; ++i) {
    losses.mean.push_back(sums_and_rows[i] / sums_and_rows[num_points + i]);
  }
  return losses;
}

void require_finite(const StepLoss& loss, int rank, const nn::Module& model,
                    std::string_view consequence) {
  if (std::isfinite(loss.sum)) return;
  const std::string parameter = first_not_finite(nn::state_dict(model));
  fail(ErrorCode::Numeric, "train",
       "the loss is {} at step {} on rank {}{}; {}, try a smaller --lr",
       std::isnan(loss.sum) ? "nan" : "infinite", loss.step, rank,
       parameter.empty() ? "" : fmt::format(", where '{}' is not finite", parameter), consequence);
}

void require_finite(const nn::StateDict& weights, std::size_t num_steps,
                    std::string_view consequence) {
  const std::string parameter = first_not_finite(weights);
  require(parameter.empty(), ErrorCode::Numeric, "train",
          "'{}' is not finite after the update of step {}, the last; {}, try a smaller "
          "--lr",
          parameter, num_steps - 1, consequence);
}

void StepLog::write(const StepRecord& record) {
  const nlohmann::ordered_json line{{"step", record.step},
                                    {"epoch", record.epoch},
                                    {"loss", record.loss},
                                    {"lr", record.learning_rate},
                                    {"grad_norm", record.grad_norm},
                                    {"step_seconds", record.step_seconds},
                                    {"samples_per_second", record.samples_per_second}};
  file_.write(line.dump() + '\n');
  file_.publish();
}

}  // namespace lockstep::tools
