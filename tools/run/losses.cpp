#include "tools/run/losses.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/core/error.h"
#include "engine/runtime/cuda_device.h"

namespace lockstep::tools {
namespace {

// The name of the first tensor with a value that is not finite; empty if there is none.
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
    pending.pinned.storage()->record_use(sum.stream());  // an error may leave copies under way
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

LossCurve::LossCurve(std::size_t num_steps) {
  constexpr std::size_t kMost = ThinnedLosses::kMostPoints;
  steps_per_point_ = std::bit_ceil((num_steps + kMost - 1) / kMost);
  sums_and_rows_.resize(2 * ((num_steps + steps_per_point_ - 1) / steps_per_point_));
}

void LossCurve::add(const StepLoss& loss) {
  const std::size_t point = loss.step / steps_per_point_;
  sums_and_rows_.at(point) += loss.sum;
  sums_and_rows_.at(sums_and_rows_.size() / 2 + point) += static_cast<double>(loss.num_rows);
}

ThinnedLosses LossCurve::means(const std::vector<double>& sums_and_rows) const {
  ThinnedLosses losses{steps_per_point_, {}};
  const std::size_t num_points = sums_and_rows.size() / 2;
  for (std::size_t i = 0; i < num_points; ++i) {
    if (sums_and_rows[num_points + i] == 0) break;  // an interrupted run did not come so far
    losses.mean.push_back(sums_and_rows[i] / sums_and_rows[num_points + i]);
  }
  return losses;
}

LossWatch::LossWatch(std::size_t num_classes)
    : guessing_loss_(std::log(static_cast<double>(std::max<std::size_t>(2, num_classes)))) {}

std::optional<std::string> LossWatch::see(std::size_t step, double loss) {
  if (step == 0) first_loss_ = loss;
  constexpr double kMost = 10;
  const bool has_exploded = loss > kMost * std::max(first_loss_, guessing_loss_);
  if (has_warned_ || !has_exploded) return {};
  has_warned_ = true;
  return fmt::format(
      "the loss exploded: {:.4g} at step 0, {:.4g} at step {}; use a smaller --lr, or --clip-norm",
      first_loss_, loss, step);
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

}  // namespace lockstep::tools
