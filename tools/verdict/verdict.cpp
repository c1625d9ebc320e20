#include "tools/verdict/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep::tools {
namespace {

constexpr double kShrinksByRounding = 1e5;

double largest_weight(const KeptTensors& weights) {
  double largest = 0;
  for (const auto& [name, values] : weights) {
    for (const double value : values) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

double tolerance_of(const TrainingTask& task, const KeptTensors& first_weights) {
  if (task.summation == Summation::bitwise) return 0;
  const double relative = task.dtype == DType::float64 ? 1e-12 : 1e-5;
  return relative * std::max(1.0, largest_weight(first_weights));
}

// Whether the same difference in the other precision is smaller or larger by what rounding is.
bool is_rounding(const TrainingTask& task, double difference, double in_other_dtype) {
  const bool is_float64 = task.dtype == DType::float64;
  const double in_float32 = is_float64 ? in_other_dtype : difference;
  const double in_float64 = is_float64 ? difference : in_other_dtype;
  return in_float64 * kShrinksByRounding <= in_float32;
}

std::optional<Finding> judge_first_steps(const TrainingTask& task, const LargestDifference& largest,
                                         double tolerance, std::size_t num_steps,
                                         const RepeatInDtype& repeat) {
  if (largest.value <= tolerance) return std::nullopt;
  const Finding finding{"first steps", num_steps - 1, 0, largest.name,
                        fmt::format("after {} steps it differs from one device's by {:.3g}, limit "
                                    "{:.3g}",
                                    num_steps, largest.value, tolerance)};
  if (task.summation == Summation::bitwise || std::isnan(largest.value)) return finding;
  const DType other = task.dtype == DType::float64 ? DType::float32 : DType::float64;
  const double repeated = repeat(other, num_steps);
  if (is_rounding(task, largest.value, repeated)) return std::nullopt;
  Finding explained = finding;
  explained.what +=
      fmt::format("; in {} by {:.3g}, so it is not rounding", lockstep::to_string(other), repeated);
  return explained;
}

// The final weights must be the same bits.
std::optional<Finding> judge_bits(const TrainingTask& task, const TrainingResult& single,
                                  const TrainingResult& row) {
  if (task.summation != Summation::bitwise) return std::nullopt;
  const LargestDifference largest = largest_difference(keep(single.weights), keep(row.weights));
  if (largest.value == 0) return std::nullopt;
  return Finding{"bits", task.num_steps - 1, 0, largest.name,
                 fmt::format("it differs from one device's by {:.3g}, and --bitwise promises the "
                             "same bits",
                             largest.value)};
}

std::string with_thousands(std::size_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

}  // namespace

double Verdict::max_gradient_error() const {
  double largest = 0;
  for (const GradientCheck& check : gradient_checks) {
    if (!(check.max_relative_error <= largest)) largest = check.max_relative_error;
  }
  return largest;
}

std::optional<Verdict> judge(const TrainingTask& task, const TrainingResult& single,
                             const TrainingResult& row, const RepeatInDtype& repeat) {
  const RunFindings& findings = *row.findings;
  if (task.sampler == Sampler::torch && !findings.failure) return std::nullopt;
  Verdict verdict;
  const KeptTensors& reference = single.findings->first_weights;
  const LargestDifference largest = largest_difference(reference, findings.first_weights);
  verdict.first_steps_max_abs_diff = largest.value;
  verdict.first_steps_tolerance = tolerance_of(task, reference);
  verdict.gradient_checks = findings.gradient_checks;
  verdict.gradient_limit = findings.gradient_limit;
  verdict.failure = findings.failure;
  if (verdict.equal()) {
    verdict.failure = judge_first_steps(task, largest, verdict.first_steps_tolerance,
                                        findings.num_first_steps, repeat);
  }
  if (verdict.equal()) verdict.failure = judge_bits(task, single, row);
  return verdict;
}

std::vector<std::string> verdict_lines(const TrainingTask& task,
                                       const std::vector<Verdict>& verdicts, double drift) {
  double first = 0;
  double gradient = 0;
  std::size_t num_checks = 0;
  for (const Verdict& verdict : verdicts) {
    first = std::max(first, verdict.first_steps_max_abs_diff);
    gradient = std::max(gradient, verdict.max_gradient_error());
    num_checks += verdict.gradient_checks.size();
  }
  const std::size_t num_first = std::min(kFirstSteps, task.num_steps);
  std::vector<std::string> lines{
      "verdict: every row trains as one device does",
      fmt::format("  weights after {} {}: within {:.1e} of one device's (limit {:.0e})", num_first,
                  num_first == 1 ? "step" : "steps", first, verdicts[0].first_steps_tolerance),
      fmt::format("  {} gradients on the same weights and rows: within {:.1e} (limit {:.0e})",
                  num_checks, gradient, verdicts[0].gradient_limit)};
  if (task.summation == Summation::bitwise) {
    lines.push_back(
        fmt::format("  weights after all {} steps: the same bits", with_thousands(task.num_steps)));
  } else if (task.num_steps > kFirstSteps && drift > 0) {
    lines.push_back(
        fmt::format("  drift: weights differ by up to {:.3g} after {} steps: {} "
                    "rounding,",
                    drift, with_thousands(task.num_steps), lockstep::to_string(task.dtype)));
    lines.push_back(task.dtype == DType::float64
                        ? "  which training amplifies; --bitwise makes the bits equal"
                        : "  which training amplifies; --explain-drift shows what float64 gives,");
    if (task.dtype != DType::float64) lines.push_back("  --bitwise makes the bits equal");
  }
  return lines;
}

std::string drift_sentence(const std::vector<std::pair<double, double>>& drifts) {
  double in_float32 = 0;
  double in_float64 = 0;
  for (const auto& [of_float32, of_float64] : drifts) {
    in_float32 = std::max(in_float32, of_float32);
    in_float64 = std::max(in_float64, of_float64);
  }
  if (in_float32 == 0) return "no row drifted";
  if (in_float64 * kShrinksByRounding <= in_float32) {
    return "with 29 more bits the drift all but vanishes: it is rounding, not the engine";
  }
  return "float64 drifts too: training this long, or at this learning rate, amplifies any rounding";
}

}  // namespace lockstep::tools
