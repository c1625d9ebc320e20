#include "tools/doctor/expected_gradient.h"

#include <algorithm>
#include <cmath>

namespace lockstep::doctor {
namespace {

using record::kSketchSize;

constexpr double kTolerance = 3e-4;  // of float32 sums, relative to their terms

// The factor on each row's gradient, if it is the same in all losses of the pass.
std::optional<double> factor_of_rows(const std::vector<LossRecord>& losses) {
  std::optional<double> factor;
  for (const LossRecord& loss : losses) {
    if (loss.num_rows == 0 && loss.is_mean) return {};
    const double of_loss =
        loss.upstream / (loss.is_mean ? static_cast<double>(loss.num_rows) : 1.0);
    if (of_loss == 0 || !std::isfinite(of_loss)) return {};
    if (factor && std::abs(*factor - of_loss) > 1e-6 * std::abs(of_loss)) return {};
    factor = of_loss;
  }
  return factor;
}

bool is_finite(const Values& values) {
  return std::ranges::all_of(values, [](double value) { return std::isfinite(value); });
}

std::optional<RankGradient> rank_gradient(const StepRecord& step) {
  RankGradient result;
  result.num_rows = num_rows(step);
  if (step.was_clipped || step.passes.empty()) return {};
  for (const ParameterRecord& parameter : step.parameters) {
    if (!parameter.has_gradient || parameter.parts.empty() || parameter.was_discarded ||
        parameter.holds_used_one) {
      return {};
    }
    Values own(kSketchSize), sum(kSketchSize);
    for (const PartRecord& part : parameter.parts) {
      const auto pass = step.passes.find(part.pass);
      if (pass == step.passes.end()) return {};
      const std::optional<double> factor = factor_of_rows(pass->second);
      if (!factor) return {};
      result.upstream = pass->second.back().upstream;
      result.is_mean = pass->second.back().is_mean;
      result.weight_of_row = *factor;
      for (std::size_t i = 0; i < kSketchSize; ++i) {
        own[i] += part.gradient[i];
        sum[i] += part.gradient[i] / *factor;
      }
    }
    result.own.insert(result.own.end(), own.begin(), own.end());
    result.sum_of_rows.insert(result.sum_of_rows.end(), sum.begin(), sum.end());
    result.used.insert(result.used.end(), parameter.used.begin(), parameter.used.end());
  }
  if (!is_finite(result.own) || !is_finite(result.used)) return {};
  return result;
}

}  // namespace

std::optional<GlobalGradient> global_gradient(const Training& training, std::size_t step) {
  GlobalGradient global;
  for (std::size_t rank = 0; rank < training.world_size(); ++rank) {
    std::optional<RankGradient> of_rank = rank_gradient(training.step(rank, step));
    if (!of_rank) return {};
    global.num_rows += of_rank->num_rows;
    global.ranks.push_back(std::move(*of_rank));
  }
  if (global.num_rows == 0) return {};
  const std::size_t length = global.ranks[0].own.size();
  global.mean.assign(length, 0);
  global.mean_of_ranks.assign(length, 0);
  global.size.assign(length / kSketchSize, 0);
  for (const RankGradient& rank : global.ranks) {
    if (rank.own.size() != length) return {};
    for (std::size_t i = 0; i < length; ++i) {
      const double share = rank.sum_of_rows[i] / static_cast<double>(global.num_rows);
      global.mean[i] += share;
      global.mean_of_ranks[i] += rank.own[i] / static_cast<double>(training.world_size());
      global.size[i / kSketchSize] += std::abs(share) / kSketchSize;
    }
  }
  return global;
}

bool GlobalGradient::is_close(const Values& a, const Values& b) const {
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double largest = std::max(std::abs(a[i]), std::abs(b[i]));
    const double scale = std::max(largest, size[i / kSketchSize]);
    if (std::abs(a[i] - b[i]) > kTolerance * scale + 1e-12) return false;
  }
  return true;
}

std::optional<double> GlobalGradient::factor(const Values& a, const Values& b) const {
  double product = 0, square = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double weight = size[i / kSketchSize] > 0 ? 1 / size[i / kSketchSize] : 0;
    product += weight * a[i] * weight * b[i];
    square += weight * b[i] * weight * b[i];
  }
  if (square <= 0) return {};
  const double result = product / square;
  Values scaled = b;
  for (double& value : scaled) value *= result;
  if (!is_close(a, scaled)) return {};
  return result;
}

}  // namespace lockstep::doctor
