#include "tools/verdict/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/report/row_table.h"

namespace lockstep::tools {
namespace {

constexpr double kAmplifiedRounding = 1e3;  // of two runs that differ only in rounding
constexpr double kDriftLimit = 1e-3;

double largest_weight(const KeptTensors& weights) {
  double largest = 0;
  for (const auto& [name, values] : weights) {
    for (const double value : values) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

double first_steps_tolerance(const TrainingTask& task, const RunFindings& single) {
  if (task.summation == Summation::bitwise) return 0;
  const bool is_float64 = task.dtype == DType::float64;
  return (is_float64 ? 1e-12 : 1e-5) * single.first_movement +
         (is_float64 ? 0x1p-50 : 0x1p-21) * largest_weight(single.first_weights);
}

// How far weights are from one device's after some steps, and how far they may be.
struct Distance {
  const char* check;
  std::size_t num_steps;
  LargestDifference largest;
  double limit;
};

// Judges the distance. If it is beyond the limit, both rows are repeated in the other precision to
// tell rounding from a fault. Returns the distance there if they were.
std::optional<double> judge_distance(const TrainingTask& task, const Distance& distance,
                                     const Repeats& repeats, Verdict& verdict) {
  const double found = distance.largest.value;
  const std::string num_steps = with_thousands(distance.num_steps);
  if (found <= distance.limit) return std::nullopt;
  Finding finding{distance.check, distance.num_steps - 1, 0, distance.largest.name,
                  fmt::format("after {} steps it differs from one device's by {:.3g}, limit {:.3g}",
                              num_steps, found, distance.limit)};
  if (task.summation == Summation::bitwise || std::isnan(found)) {
    verdict.failure = finding;
    return std::nullopt;
  }
  const bool is_float64 = task.dtype == DType::float64;
  const DType other = is_float64 ? DType::float32 : DType::float64;
  const double repeated = repeats.row(other, distance.num_steps);
  const double in_float32 = is_float64 ? repeated : found;
  const double in_float64 = is_float64 ? found : repeated;
  if (in_float64 * kShrinksByRounding <= in_float32) return repeated;
  const double control = repeats.control(distance.num_steps);
  if (in_float64 <= kAmplifiedRounding * control) {
    verdict.unjudged = fmt::format(
        "this training amplifies any rounding: after {} steps in float64, one device that starts "
        "one bit off is {:.2g} from itself",
        num_steps, control);
    return repeated;
  }
  finding.what +=
      fmt::format("; in {} by {:.3g}, so it is not rounding, which shrinks by about 1e8 in float64",
                  lockstep::to_string(other), repeated);
  verdict.failure = finding;
  return repeated;
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
                             const TrainingResult& row, const Repeats& repeats) {
  const RunFindings& findings = *row.findings;
  Verdict verdict;
  verdict.gradient_checks = findings.gradient_checks;
  verdict.gradient_limit = findings.gradient_limit;
  verdict.failure = findings.failure;
  if (!verdict.failure) {
    verdict.unjudged = findings.exploded.empty() ? single.findings->exploded : findings.exploded;
  }
  if (task.sampler == Sampler::torch) {
    return verdict.failure ? std::optional(verdict) : std::nullopt;
  }
  verdict.has_own_statistics = task.has_own_statistics();
  if (verdict.has_own_statistics) return verdict;
  const RunFindings& expected = *single.findings;
  const LargestDifference first =
      largest_difference(expected.first_weights, findings.first_weights);
  verdict.first_steps_max_abs_diff = first.value;
  verdict.first_steps_tolerance = first_steps_tolerance(task, expected);
  if (verdict.equal()) {
    verdict.repeated_first_steps = judge_distance(
        task, {"first steps", findings.num_first_steps, first, verdict.first_steps_tolerance},
        repeats, verdict);
  }
  const bool is_bitwise = task.summation == Summation::bitwise;
  if (verdict.equal() && (is_bitwise || task.num_steps > kFirstSteps)) {
    verdict.repeated_drift =
        judge_distance(task,
                       {is_bitwise ? "bits" : "drift", task.num_steps,
                        largest_difference(keep(single.weights), keep(row.weights)),
                        is_bitwise ? 0 : kDriftLimit * std::min(1.0, expected.movement)},
                       repeats, verdict);
  }
  return verdict;
}

namespace {

// "weights after 20 steps: 2.9, float32 rounding that training amplifies: in float64 it is 3e-10"
std::vector<std::string> rounding_lines(const TrainingTask& task, const std::string& difference,
                                        double repeated) {
  const bool is_float64 = task.dtype == DType::float64;
  return {
      fmt::format("  {}, {} rounding that training", difference, lockstep::to_string(task.dtype)),
      repeated > 0 ? fmt::format("  amplifies: in {} it is {:.2g}",
                                 is_float64 ? "float32" : "float64", repeated)
                   : "  amplifies; --bitwise makes the bits equal"};
}

}  // namespace

std::vector<std::string> verdict_lines(const TrainingTask& task,
                                       const std::vector<Verdict>& verdicts, double drift) {
  double first = 0;
  double gradient = 0;
  double repeated = 0;
  double repeated_first = 0;
  std::size_t num_checks = 0;
  for (const Verdict& verdict : verdicts) {
    first = std::max(first, verdict.first_steps_max_abs_diff);
    gradient = std::max(gradient, verdict.max_gradient_error());
    repeated = std::max(repeated, verdict.repeated_drift.value_or(0));
    repeated_first = std::max(repeated_first, verdict.repeated_first_steps.value_or(0));
    num_checks += verdict.gradient_checks.size();
  }
  if (verdicts[0].has_own_statistics) {
    return {"verdict: every row trains as one device does with the same batch statistics",
            fmt::format("  {} whole steps from the same state: gradients within {:.1e}", num_checks,
                        gradient),
            fmt::format("  (limit {:.0e}), every update to the bit", verdicts[0].gradient_limit),
            "  batch norm takes the statistics of each device's own rows, as in PyTorch,",
            "  so weights differ from one device's; --sync-batch-norm makes them equal"};
  }
  const std::size_t num_first = std::min(kFirstSteps, task.num_steps);
  const std::string num_steps = with_thousands(task.num_steps);
  const auto after = [](const std::string& steps) {
    return fmt::format("after {} {}", steps, steps == "1" ? "step" : "steps");
  };
  std::vector<std::string> lines{"verdict: every row trains as one device does"};
  const auto add = [&](const std::vector<std::string>& more) {
    lines.insert(lines.end(), more.begin(), more.end());
  };
  const std::string first_steps = "weights " + after(std::to_string(num_first));
  if (repeated_first > 0) {
    add(rounding_lines(task, fmt::format("{}: {:.2g} apart", first_steps, first), repeated_first));
  } else {
    add({fmt::format("  {}: within {:.1e} of one device's (limit {:.0e})", first_steps, first,
                     verdicts[0].first_steps_tolerance)});
  }
  add({fmt::format("  {} whole steps from the same state: gradients within {:.1e}", num_checks,
                   gradient),
       fmt::format("  (limit {:.0e}), every update to the bit", verdicts[0].gradient_limit)});
  if (task.summation == Summation::bitwise) {
    add({fmt::format("  weights {}: the same bits", after("all " + num_steps))});
  } else if (task.num_steps > kFirstSteps && drift > 0) {
    add(rounding_lines(task, fmt::format("drift {}: {:.2g}", after(num_steps), drift), repeated));
  }
  return lines;
}

}  // namespace lockstep::tools
