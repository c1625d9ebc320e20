#include "engine/trace/step_statistics.h"

#include <algorithm>

namespace lockstep::trace {
namespace {

// The smallest of the values that at least this share of them does not exceed. REQUIRES: some.
double quantile(std::vector<double> values, std::size_t percent) {
  const std::size_t index = (values.size() * percent + 99) / 100 - 1;
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(index);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

}  // namespace

StepStatistics step_statistics(const std::vector<StepBreakdown>& steps) {
  StepStatistics statistics;
  statistics.num_steps = steps.size();
  if (steps.empty()) return statistics;
  const auto take = [&](const BreakdownFigure& figure) {
    std::vector<double> values;
    for (const StepBreakdown& step : steps) values.push_back(step.*figure.seconds);
    statistics.median.*figure.seconds = quantile(values, 50);
    statistics.p90.*figure.seconds = quantile(values, 90);
  };
  for (const BreakdownFigure& part : kBreakdownParts) take(part);
  for (const BreakdownFigure& total : kBreakdownTotals) take(total);
  return statistics;
}

StepBreakdown typical_step(const StepBreakdown& step, const StepBreakdown& medians) {
  double sum = 0;
  for (const BreakdownFigure& part : kBreakdownParts) sum += medians.*part.seconds;
  if (sum <= 0) return step;
  StepBreakdown typical = step;
  for (const BreakdownFigure& part : kBreakdownParts) {
    typical.*part.seconds = medians.*part.seconds * step.step / sum;
  }
  return typical;
}

std::optional<double> comm_overlap(const std::vector<StepBreakdown>& steps) {
  double comm = 0;
  double overlapped = 0;
  for (const StepBreakdown& step : steps) {
    comm += step.comm;
    overlapped += step.overlapped_comm;
  }
  return comm > 0 ? std::optional(overlapped / comm) : std::nullopt;
}

}  // namespace lockstep::trace
