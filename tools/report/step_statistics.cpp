#include "tools/report/step_statistics.h"

#include <algorithm>
#include <cstddef>

namespace lockstep::tools {

namespace {

// The smallest of the values that at least this share of them does not exceed. REQUIRES: some.
double quantile(std::vector<double> values, std::size_t percent) {
  const std::size_t index = (values.size() * percent + 99) / 100 - 1;
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(index);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

}  // namespace

StepStatistics step_statistics(const std::vector<trace::StepBreakdown>& steps) {
  StepStatistics statistics;
  statistics.num_steps = steps.size();
  if (steps.empty()) return statistics;
  const auto take = [&](const trace::BreakdownFigure& figure) {
    std::vector<double> values;
    for (const trace::StepBreakdown& step : steps) values.push_back(step.*figure.seconds);
    statistics.median.*figure.seconds = quantile(values, 50);
    statistics.p90.*figure.seconds = quantile(values, 90);
  };
  for (const trace::BreakdownFigure& part : trace::kBreakdownParts) take(part);
  for (const trace::BreakdownFigure& total : trace::kBreakdownTotals) take(total);
  return statistics;
}

trace::StepBreakdown typical_step(const trace::StepBreakdown& step,
                                  const trace::StepBreakdown& medians) {
  double sum = 0;
  for (const trace::BreakdownFigure& part : trace::kBreakdownParts) sum += medians.*part.seconds;
  if (sum <= 0) return step;
  trace::StepBreakdown typical = step;
  for (const trace::BreakdownFigure& part : trace::kBreakdownParts) {
    typical.*part.seconds = medians.*part.seconds * step.step / sum;
  }
  return typical;
}

std::optional<double> comm_overlap(const std::vector<trace::StepBreakdown>& steps) {
  double comm = 0;
  double overlapped = 0;
  for (const trace::StepBreakdown& step : steps) {
    comm += step.comm;
    overlapped += step.overlapped_comm;
  }
  return comm > 0 ? std::optional(overlapped / comm) : std::nullopt;
}

}  // namespace lockstep::tools
