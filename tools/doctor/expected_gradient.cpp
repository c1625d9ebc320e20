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

// Solves a x = b by elimination with pivots; empty if a is singular.
std::optional<std::vector<double>> solve(std::vector<std::vector<double>> a,
                                         std::vector<double> b) {
  const std::size_t n = b.size();
  const double largest = a[0][0];
  for (std::size_t k = 0; k < n; ++k) {
    std::size_t pivot = k;
    for (std::size_t i = k + 1; i < n; ++i) {
      if (std::abs(a[i][k]) > std::abs(a[pivot][k])) pivot = i;
    }
    if (std::abs(a[pivot][k]) <= 1e-6 * largest) return {};
    std::swap(a[k], a[pivot]);
    std::swap(b[k], b[pivot]);
    for (std::size_t i = k + 1; i < n; ++i) {
      const double factor = a[i][k] / a[k][k];
      for (std::size_t j = k; j < n; ++j) a[i][j] -= factor * a[k][j];
      b[i] -= factor * b[k];
    }
  }
  for (std::size_t k = n; k-- > 0;) {
    for (std::size_t j = k + 1; j < n; ++j) b[k] -= a[k][j] * b[j];
    b[k] /= a[k][k];
  }
  return b;
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
  global.size.assign(length / kSketchSize, 0);
  for (const RankGradient& rank : global.ranks) {
    if (rank.own.size() != length) return {};
    for (std::size_t i = 0; i < length; ++i) {
      const double share = rank.sum_of_rows[i] / static_cast<double>(global.num_rows);
      global.mean[i] += share;
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

std::optional<std::vector<double>> GlobalGradient::weights_of_rows(const Values& used) const {
  const std::size_t n = ranks.size();
  std::vector<std::vector<double>> a(n, std::vector<double>(n));
  std::vector<double> b(n);
  for (std::size_t i = 0; i < used.size(); ++i) {
    const double size_here = size[i / kSketchSize];
    if (size_here <= 0) continue;
    const double weight = 1 / (size_here * size_here);
    for (std::size_t r = 0; r < n; ++r) {
      for (std::size_t q = 0; q < n; ++q) {
        a[r][q] += weight * ranks[r].sum_of_rows[i] * ranks[q].sum_of_rows[i];
      }
      b[r] += weight * ranks[r].sum_of_rows[i] * used[i];
    }
  }
  std::optional<std::vector<double>> weights = solve(std::move(a), std::move(b));
  if (!weights) return {};
  Values sum(used.size());
  for (std::size_t r = 0; r < n; ++r) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += (*weights)[r] * ranks[r].sum_of_rows[i];
  }
  if (!is_close(used, sum)) return {};
  return weights;
}

}  // namespace lockstep::doctor
