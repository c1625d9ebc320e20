#include "tools/explain/step_cost.h"

#include <algorithm>
#include <cmath>

namespace lockstep::tools {
namespace {

// Two rows' epochs are compared by how many rows of data they hold, of which the file has only the
// ratio: speed-up = ratio of rows * ratio of times.
constexpr double kBaselineRows = 1e9;

Mode mode_of(const FileRow& row) {
  for (const Mode mode : {Mode::single, Mode::data_parallel, Mode::pipeline}) {
    if (to_string(mode) == row.mode) return mode;
  }
  return Mode::ddp;
}

double epoch_seconds(const FileRow& row) {
  return row.median_epoch_seconds.value_or(row.step_seconds);
}

double speedup(const FileRow& row, const FileRow& baseline) {
  if (row.speedup) return *row.speedup;
  return row.samples_per_second() / baseline.samples_per_second();
}

RunRow to_run_row(const FileRow& row, Mode mode, const FileRow& baseline, bool is_cuda) {
  const bool has_hardware = row.kind == "measured";
  RunRow run_row;
  run_row.placement.mode = mode;
  const DeviceType type = is_cuda || !has_hardware ? DeviceType::cuda : DeviceType::cpu;
  run_row.placement.devices.assign(row.devices, Device{type, 0});
  run_row.placement.num_physical = has_hardware ? row.physical_devices : row.devices;
  run_row.threads_per_device = row.threads_per_device;
  run_row.batch = row.batch;
  run_row.contended = has_hardware ? row.contended : std::optional(false);
  run_row.result.breakdown = row.breakdown;
  run_row.result.comm_bytes_per_step =
      static_cast<std::size_t>(std::min(row.comm_bytes_per_device_per_step, 1e18));
  run_row.result.epoch_seconds = {epoch_seconds(row)};
  const double ratio = speedup(row, baseline) * epoch_seconds(row) / epoch_seconds(baseline);
  run_row.epoch_rows =
      static_cast<std::size_t>(std::llround(kBaselineRows * std::clamp(ratio, 1e-9, 1e9)));
  return run_row;
}

}  // namespace

RunRows rows_of_kind(const RunFile& file, std::string_view kind, Changes changes) {
  RunRows found;
  const FileRow* baseline = nullptr;
  for (const FileRow& row : file.rows) {
    if (row.kind != kind || (changes == Changes::without && !row.what_if.empty())) continue;
    const Mode mode = mode_of(row);
    if (baseline == nullptr || mode == Mode::single) baseline = &row;
    found.of_file.push_back(&row);
    found.rows.push_back(to_run_row(row, mode, *baseline, file.config_value("device") == "cuda"));
  }
  return found;
}

bool is_changed_in(const FileRow& row, const FileRow& base, std::string_view what) {
  const std::size_t equals = row.what_if.find('=');
  return row.kind == base.kind && row.mode == base.mode && row.devices == base.devices &&
         std::string_view(row.what_if).substr(0, equals) == what &&
         row.what_if.find_first_of("=, ", equals + 1) == std::string::npos;
}

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
