#include "tools/check/one_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep::tools {
namespace {

constexpr double kHuge = 1e300;  // the norm of a gradient that has overflowed

}  // namespace

ReferenceGradient OneDevice::step_from(std::size_t step, const KeptTensors& state) const {
  const std::vector<std::size_t> rows = rows_.of_step(step);
  const std::size_t num_parts = task_.accumulate * strategy_.num_parts();
  return reference_gradient(task_, device_, state, step, rows,
                            (rows.size() + num_parts - 1) / num_parts,
                            std::max(strategy_.num_averaged(), task_.loss_ranks));
}

std::string OneDevice::wrong_statistic(std::size_t step, const StepTensors& mine,
                                       const ReferenceGradient& after) const {
  KeptTensors larger = mine.before;
  for (const auto& [statistic, old] : mine.statistics_before) {
    const auto found = std::ranges::find(larger, statistic, &KeptTensors::value_type::first);
    for (double& value : found->second) value += 1;
  }
  return statistic_against_the_rule(mine.before, after, step_from(step, larger));
}

FromOneDevice OneDevice::compare(std::size_t step, const StepTensors& mine) const {
  const bool is_first = step == task_.first_step();
  KeptTensors with_statistics;
  if (!is_first && !mine.statistics_before.empty()) {
    with_statistics = mine.before;
    with_statistics.insert(with_statistics.end(), mine.statistics_before.begin(),
                           mine.statistics_before.end());
  }
  const KeptTensors& before = with_statistics.empty() ? mine.before : with_statistics;
  const ReferenceGradient expected = step_from(step, before);
  FromOneDevice compared;
  compared.check.step = step;
  compared.loss = expected.mean_loss;
  compared.loss_limit = limit_ * std::max(1.0, std::abs(expected.mean_loss));
  if (!std::ranges::all_of(expected.sizes, [](double size) { return size < kHuge; })) {
    compared.loss = std::nan("");
    return compared;
  }
  if (is_first && !mine.statistics_before.empty()) {
    const std::string name = wrong_statistic(step, mine, expected);
    if (!name.empty()) {
      compared.failure.push_back(
          {"statistics", step, 0, name, "one device does not keep 0.9 of it and count the batch"});
      return compared;
    }
  }
  std::vector<TensorError> errors =
      errors_of(mine.gradients, mine.statistics_after, expected, limit_);
  const bool sums_statistics = task_.batch_norm == parallel::BatchNormRows::all;
  if (sums_statistics || std::ranges::any_of(errors, &TensorError::is_beyond)) {
    KeptTensors off = before;
    for (auto& [name, values] : off) {
      const auto parameter =
          std::ranges::find(expected.values, name, &KeptTensors::value_type::first);
      if (parameter == expected.values.end()) continue;
      values = one_bit_off(std::move(values), task_.dtype);
    }
    const ReferenceGradient changed = step_from(step, off);
    allow_amplified(errors, expected, changed);
    compared.loss_limit += kTimesOneBit * std::abs(changed.mean_loss - expected.mean_loss);
  }
  take_errors(errors, compared);
  return compared;
}

void OneDevice::take_errors(const std::vector<TensorError>& errors, FromOneDevice& compared) const {
  const auto worst = std::ranges::max_element(errors, [](const auto& a, const auto& b) {
    return a.error / a.limit < b.error / b.limit || (std::isnan(b.error) && !std::isnan(a.error));
  });
  if (worst->is_beyond()) {
    compared.failure.push_back(
        {worst->check, compared.check.step, 0, worst->name,
         fmt::format("relative error {:.3g} against one device's on the same weights and rows, "
                     "limit {:.0e}",
                     worst->error, worst->limit)});
  }
  for (const TensorError& tensor : errors) {
    const bool is_within = !(tensor.error > limit_);
    double& largest = compared.check.max_relative_error;
    if (is_within) largest = std::max(largest, tensor.error);
    compared.check.num_amplified += !is_within;
  }
}

}  // namespace lockstep::tools
