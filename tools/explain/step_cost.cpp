#include "tools/explain/step_cost.h"

#include <algorithm>
#include <cmath>

namespace lockstep::tools {

StepLine line_of(const FileRow& row) {
  const double computation = row.breakdown->forward + row.breakdown->backward;
  return {computation / static_cast<double>(row.batch), row.step_seconds - computation};
}

StepLine line_through(const FileRow& small, const FileRow& large) {
  const auto batch = [](const FileRow& row) { return static_cast<double>(row.batch); };
  const double slope = (large.step_seconds - small.step_seconds) / (batch(large) - batch(small));
  return {slope, small.step_seconds - slope * batch(small)};
}

bool is_proportional(const FileRow& one, const FileRow& several, double ideal) {
  constexpr double kMostOff = 1.2;
  const double factor =
      ideal * line_of(several).seconds_per_row / std::max(line_of(one).seconds_per_row, 1e-18);
  return factor <= kMostOff && factor >= 1 / kMostOff;
}

bool is_on_line(const StepLine& line, const std::vector<const FileRow*>& rows) {
  constexpr double kMostOff = 0.1;
  return line.seconds_per_row > 0 && line.fixed_seconds >= 0 &&
         std::ranges::all_of(rows, [&](const FileRow* row) {
           const double off = line.at(static_cast<double>(row->batch)) / row->step_seconds - 1;
           return std::abs(off) <= kMostOff;
         });
}

std::optional<double> batch_for_speedup(const StepLine& one, const StepLine& several,
                                        double factor) {
  const double gain_per_row = one.seconds_per_row - factor * several.seconds_per_row;
  if (gain_per_row <= 0) return std::nullopt;
  const double cost = factor * several.fixed_seconds - one.fixed_seconds;
  return std::max(1.0, cost / gain_per_row);
}

DoubledStep double_devices(const FileRow& row) {
  const trace::StepBreakdown& now = *row.breakdown;
  const auto n = static_cast<double>(row.devices);
  const bool is_star = row.mode == "dp";
  const double comm_now = now.exposed_comm + (is_star ? now.copy : 0);
  DoubledStep next;
  next.computation = (now.forward + now.backward) / 2;
  next.fixed = row.step_seconds - now.forward - now.backward - comm_now;
  next.traffic_factor = (2 * n - 1) / (is_star ? n - 1 : 2 * n - 2);
  next.comm = next.traffic_factor * (comm_now + now.overlapped_comm);
  next.hidden = std::min(next.traffic_factor * now.overlapped_comm, now.backward / 2);
  next.step = next.computation + next.fixed + next.comm - next.hidden;
  return next;
}

}  // namespace lockstep::tools
