#include "tools/explain/run_rows.h"

#include <algorithm>
#include <cmath>

namespace lockstep::tools {
namespace {

// Epochs are compared by the rows that they hold, of which the file says no more than their ratio:
// the speed-up is that ratio times that of the times.
constexpr double kBaselineRows = 1e9;

Mode mode_of(const FileRow& row) {
  for (const Mode mode : {Mode::single, Mode::data_parallel}) {
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

}  // namespace lockstep::tools
