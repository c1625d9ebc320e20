#include "tools/check/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/matmul_precision.h"
#include "tools/check/reference_step.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

constexpr double kAmplifiedRounding = 1e3;  // how far runs that differ in rounding drift apart
constexpr double kTimesBfloat16 = 5;        // the same, with products in bfloat16
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
         (is_float64 ? 0x1p-50 : 0x1p-21) * largest_weight(parameters_of(single.first_weights));
}

// A part of the state after some steps, and how far it may be from one device's.
struct Comparison {
  const char* check;
  std::size_t num_steps;
  LargestDifference StateDistance::*part;
  LargestDifference found;
  double limit;
};

// Judges a distance. If it is beyond the limit, both rows are repeated in the other precision to
// tell rounding from a fault. Returns the distance there if they were.
std::optional<double> judge_distance(const TrainingTask& task, const Comparison& comparison,
                                     const Repeats& repeats, Verdict& verdict) {
  const double found = comparison.found.value;
  const std::string num_steps = with_thousands(comparison.num_steps);
  if (found <= comparison.limit) return std::nullopt;
  Finding finding{comparison.check, comparison.num_steps - 1, 0, comparison.found.name,
                  fmt::format("after {} steps it differs from one device's by {:.3g}, limit {:.3g}",
                              num_steps, found, comparison.limit)};
  if (task.summation == Summation::bitwise || std::isnan(found)) {
    verdict.failure = finding;
    return std::nullopt;
  }
  const bool is_float64 = task.dtype == DType::float64;
  const DType other = is_float64 ? DType::float32 : DType::float64;
  const auto value = [&](const StateDistance& distance) {
    return (distance.*comparison.part).value;
  };
  const double repeated = value(repeats.row(other, comparison.num_steps));
  const double in_float32 = is_float64 ? repeated : found;
  const double in_float64 = is_float64 ? found : repeated;
  if (in_float64 * kShrinksByRounding <= in_float32) {
    if (kernels::matmul_precision() != kernels::MatmulPrecision::bf16) return repeated;
    // A fault that float64 does not have would be forgotten.
    const double off = value(repeats.control(task.dtype, comparison.num_steps));
    if (found <= kTimesBfloat16 * off) return repeated;
    finding.what += fmt::format(
        "; one device that starts one bit off is {:.2g} from itself, so it is not rounding", off);
    verdict.failure = finding;
    return repeated;
  }
  const double control = value(repeats.control(DType::float64, comparison.num_steps));
  if (in_float64 <= kAmplifiedRounding * control) {
    verdict.incomparable = fmt::format(
        "this training amplifies any rounding: after {} steps in float64, one device that starts "
        "one bit off is {:.2g} from itself",
        num_steps, control);
    return std::nullopt;
  }
  finding.what +=
      fmt::format("; in {} by {:.3g}, so it is not rounding, which shrinks by about 1e8 in float64",
                  lockstep::to_string(other), repeated);
  verdict.failure = finding;
  return repeated;
}

// The parameters, then the statistics. Returns the larger repeated distance.
std::optional<double> judge_state(const TrainingTask& task, const char* check,
                                  std::size_t num_steps, const StateDistance& found,
                                  const StateDistance& limits, const Repeats& repeats,
                                  Verdict& verdict) {
  std::optional<double> repeated;
  for (const auto part : {&StateDistance::parameters, &StateDistance::statistics}) {
    if (!verdict.is_comparable()) break;
    repeated = std::max(
        repeated, judge_distance(task, {check, num_steps, part, found.*part, (limits.*part).value},
                                 repeats, verdict));
  }
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

namespace {

// The judged state and losses may not be what the run returns. Those who read the table, the file
// and the saved weights read what it returns.
std::optional<Finding> other_result(const TrainingTask& task, const TrainingResult& row) {
  const RunFindings& findings = *row.findings;
  const auto finding = [&](const std::string& parameter, const std::string& what) {
    return Finding{"result", task.num_steps - 1, 0, parameter, what};
  };
  for (const auto& [name, bits] : findings.last_state) {
    const auto found = std::ranges::find(row.weights, name, &nn::StateDict::value_type::first);
    if (found != row.weights.end() && digest(found->second.to_vector<double>()) == bits) {
      continue;
    }
    return finding(name, "the run returns other values than those after its last step");
  }
  const std::vector<double>& curve = row.losses.mean;
  const auto differs = [](double a, double b) { return std::abs(a - b) > 1e-9 * std::abs(b); };
  for (std::size_t i = 0; i < std::max(curve.size(), findings.losses.mean.size()); ++i) {
    const bool is_there = i < curve.size() && i < findings.losses.mean.size();
    if (is_there && !differs(curve[i], findings.losses.mean[i])) continue;
    return finding("all", fmt::format("point {} of the loss curve is not the mean over all ranks' "
                                      "rows",
                                      i));
  }
  if (!findings.test_result) return std::nullopt;
  const std::vector<double>& test = task.is_text() ? row.epoch_validation_loss : row.epoch_accuracy;
  const double expected = *findings.test_result;
  const bool is_gpu = findings.gradient_limit !=
                      gradient_limit(task.dtype, DeviceType::cpu, kernels::matmul_precision());
  // On a CPU a row has the same bits in every batch.
  const double few_rows = is_gpu ? 0.01 : 1e-9;
  const double limit =
      task.is_text() ? findings.gradient_limit * std::max(1.0, expected) : few_rows;
  if (std::abs(test.back() - expected) <= limit) return std::nullopt;
  return finding("all", fmt::format("the test rows give {:.6g}, and one device with the run's "
                                    "weights gets {:.6g}",
                                    test.back(), expected));
}

}  // namespace

std::optional<Verdict> judge(const TrainingTask& task, const TrainingResult& single,
                             const TrainingResult& row, const Repeats& repeats) {
  const RunFindings& findings = *row.findings;
  Verdict verdict;
  verdict.gradient_checks = findings.gradient_checks;
  verdict.gradient_limit = findings.gradient_limit;
  verdict.failure = findings.failure ? findings.failure : other_result(task, row);
  const bool have_exploded = !findings.exploded.empty() && !single.findings->exploded.empty();
  if (have_exploded) verdict.incomparable = findings.exploded;
  if (task.sampler == Sampler::torch) {
    return verdict.failure ? std::optional(verdict) : std::nullopt;
  }
  verdict.has_own_statistics = task.has_own_statistics();
  const RunFindings& expected = *single.findings;
  const bool has_first = !findings.first_weights.empty();  // not if it was resumed after them
  const StateDistance first =
      has_first ? distance(expected.first_weights, findings.first_weights) : StateDistance{};
  verdict.first_steps_max_abs_diff = first.parameters.value;
  verdict.first_steps_tolerance = first_steps_tolerance(task, expected);
  const bool is_bitwise = task.summation == Summation::bitwise;
  if (verdict.is_comparable()) {
    const double of_statistics = is_bitwise ? 0 : task.dtype == DType::float64 ? 1e-12 : 1e-5;
    verdict.repeated_first_steps =
        judge_state(task, "first steps", findings.num_first_steps, first,
                    {{"", verdict.first_steps_tolerance}, {"", of_statistics}}, repeats, verdict);
  }
  if (verdict.is_comparable() && (is_bitwise || task.num_steps > kFirstSteps)) {
    verdict.repeated_drift =
        judge_state(task, is_bitwise ? "bits" : "drift", task.num_steps,
                    distance(keep(single.weights), keep(row.weights)),
                    {{"", is_bitwise ? 0 : kDriftLimit * std::min(1.0, expected.movement)},
                     {"", is_bitwise ? 0 : kDriftLimit}},
                    repeats, verdict);
  }
  return verdict;
}

namespace {

// "weights after 20 steps: 2.9, float32 rounding that training amplifies: in float64 it is 3e-10"
std::vector<std::string> rounding_lines(const TrainingTask& task, const std::string& difference,
                                        double repeated) {
  const bool is_float64 = task.dtype == DType::float64;
  const bool is_bf16 = !is_float64 && kernels::matmul_precision() == kernels::MatmulPrecision::bf16;
  return {fmt::format("  {}, {} rounding that training", difference,
                      is_bf16 ? "bfloat16" : lockstep::to_string(task.dtype)),
          repeated > 0 ? fmt::format("  amplifies: in {} it is {:.2g}",
                                     is_float64 ? "float32" : "float64", repeated)
                       : "  amplifies; --bitwise makes the bits equal"};
}

std::string after(const std::string& steps) {
  return fmt::format("after {} {}", steps, steps == "1" ? "step" : "steps");
}

// Looks at the rows whose weights were compared.
template <typename Of>
double largest(const std::vector<Verdict>& verdicts, const Of& of) {
  double value = 0;
  for (const Verdict& verdict : verdicts) {
    if (verdict.is_comparable()) value = std::max(value, of(verdict));
  }
  return value;
}

std::vector<std::string> first_lines(const TrainingTask& task,
                                     const std::vector<Verdict>& verdicts) {
  const std::string weights =
      "weights " + after(std::to_string(std::min(kFirstSteps, task.num_steps)));
  const double first =
      largest(verdicts, [](const Verdict& verdict) { return verdict.first_steps_max_abs_diff; });
  const double repeated = largest(
      verdicts, [](const Verdict& verdict) { return verdict.repeated_first_steps.value_or(0); });
  if (repeated > 0) {
    return rounding_lines(task, fmt::format("{}: {:.2g} apart", weights, first), repeated);
  }
  return {fmt::format("  {}: within {:.1e} of one device's (limit {:.0e})", weights, first,
                      verdicts[0].first_steps_tolerance)};
}

std::vector<std::string> step_lines(const std::vector<Verdict>& verdicts) {
  std::size_t num_checks = 0;
  std::size_t num_amplified = 0;
  double gradient = 0;
  for (const Verdict& verdict : verdicts) {
    gradient = std::max(gradient, verdict.max_gradient_error());
    num_checks += verdict.gradient_checks.size();
    num_amplified += static_cast<std::size_t>(
        std::ranges::count_if(verdict.gradient_checks, &GradientCheck::num_amplified));
  }
  std::vector<std::string> lines{
      fmt::format("  {} whole steps from the same state: gradients within {:.1e}", num_checks,
                  gradient),
      fmt::format("  (limit {:.0e}), every update by the optimizer's formula",
                  verdicts[0].gradient_limit)};
  if (verdicts[0].gradient_limit >= 1e-3) {
    lines.push_back("  a fault that changes gradients by less than the limit is not seen here");
  }
  if (num_amplified > 0) {
    lines.push_back(fmt::format(
        "  in {} of them some are further apart, {:.0f} times what one bit does at most",
        num_amplified, kTimesOneBit));
  }
  return lines;
}

std::vector<std::string> drift_lines(const TrainingTask& task,
                                     const std::vector<Verdict>& verdicts) {
  const std::string num_steps = with_thousands(task.num_steps);
  if (task.summation == Summation::bitwise) {
    return {fmt::format("  weights {}: the same bits", after("all " + num_steps))};
  }
  const double drift = largest(verdicts, [](const Verdict& verdict) { return verdict.drift; });
  if (task.num_steps <= kFirstSteps || drift == 0) return {};
  const double repeated =
      largest(verdicts, [](const Verdict& verdict) { return verdict.repeated_drift.value_or(0); });
  return rounding_lines(task, fmt::format("drift {}: {:.2g}", after(num_steps), drift), repeated);
}

}  // namespace

std::vector<std::string> verdict_lines(const TrainingTask& task,
                                       const std::vector<Verdict>& verdicts) {
  const auto num_comparable =
      static_cast<std::size_t>(std::ranges::count_if(verdicts, &Verdict::is_comparable));
  const bool are_all = num_comparable == verdicts.size();
  std::vector<std::string> lines{
      fmt::format("verdict: every row {}{}",
                  are_all ? "trains as one device does" : "makes the steps that one device makes",
                  verdicts[0].has_own_statistics ? " with the same batch statistics" : "")};
  const auto add = [&](const std::vector<std::string>& more) {
    lines.insert(lines.end(), more.begin(), more.end());
  };
  const bool has_compared = num_comparable > 1 || verdicts.size() == 1;  // the first is one device
  if (has_compared) add(first_lines(task, verdicts));
  add(step_lines(verdicts));
  if (has_compared) add(drift_lines(task, verdicts));
  if (!are_all) {
    const auto first = std::ranges::find_if_not(verdicts, &Verdict::is_comparable);
    add({fmt::format("  weights of {} of {} rows are not compared: {}",
                     verdicts.size() - num_comparable, verdicts.size(), first->incomparable)});
  }
  if (verdicts[0].has_own_statistics) {
    add({"  batch norm takes the statistics of each device's own rows, as in PyTorch, so",
         "  one device took the batch in the same shares; --sync-batch-norm makes all",
         "  rows equal one device with whole batches"});
  }
  return lines;
}

}  // namespace lockstep::tools
