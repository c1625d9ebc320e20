#include "tools/report/row_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/runtime/logical_device.h"
#include "tools/report/contention.h"
#include "tools/training/devices.h"

namespace lockstep::tools {
namespace {

std::string format_bytes(std::size_t num_bytes) {
  const double bytes = static_cast<double>(num_bytes);
  if (num_bytes < 1024) return fmt::format("{} B", num_bytes);
  if (num_bytes < std::size_t{1} << 20) return fmt::format("{:.1f} KiB", bytes / 1024);
  return fmt::format("{:.1f} MiB", bytes / (1 << 20));
}

// The mean over devices, in percent.
std::string format_busy(const std::vector<double>& fractions) {
  if (fractions.empty()) return "-";
  double total = 0;
  for (const double fraction : fractions) total += fraction;
  return fmt::format("{:.0f} %", 100 * total / static_cast<double>(fractions.size()));
}

// Said of the row with the most devices.
std::string gpu_sharing_note(const std::vector<RunRow>& rows) {
  const auto has_fewer = [](const RunRow& a, const RunRow& b) {
    return a.placement.devices.size() < b.placement.devices.size();
  };
  const RunRow& largest = *std::max_element(rows.begin(), rows.end(), has_fewer);
  const std::size_t num_devices = largest.placement.devices.size();
  const std::size_t num_gpus = num_physical_devices(largest.placement);
  if (num_devices == num_gpus) return {};
  return fmt::format("{} virtual devices on {} {}: this shows overhead, not speed-up", num_devices,
                     num_gpus, num_gpus == 1 ? "GPU" : "GPUs");
}

}  // namespace

std::string table_header() {
  return fmt::format("{:<7}{:>8}{:>9}{:>12}{:>11}{:>11}{:>11}{:>7}{:>12}{:>9}{:>10}{:>12}", "mode",
                     "devices", "threads", "epoch time", "step", "speed-up", "efficiency", "busy",
                     "comm/step", "loss", "accuracy", "max |dw|");
}

std::string table_line(const RunRow& row, const RunRow& single) {
  const Scaling against_single = scaling(row, single);
  const TrainingResult& result = row.result;
  return fmt::format(
      "{:<7}{:>8}{:>9}{:>12}{:>11}{:>10.2f}x{:>9.0f} %{:>7}{:>12}{:>9.4f}{:>8.2f} %{:>12}{}",
      to_string(row.placement.mode), row.placement.devices.size(), row.threads_per_device,
      trace::format_seconds(row.median_epoch_seconds()), trace::format_seconds(row.step_seconds()),
      against_single.speedup, 100 * against_single.efficiency, format_busy(result.busy_fraction),
      format_bytes(result.comm_bytes_per_step), result.final_loss, 100 * result.test_accuracy,
      row.placement.mode == Mode::single ? "reference"
                                         : fmt::format("{:.1e}", row.max_abs_weight_diff),
      contention_mark(row));
}

std::string sharing_note(const std::vector<RunRow>& rows) {
  const std::size_t cores = runtime::num_cores();
  std::size_t most = 0;
  for (const RunRow& row : rows) most = std::max(most, row.placement.devices.size());
  if (rows[0].placement.devices[0].type == DeviceType::cuda) return gpu_sharing_note(rows);
  if (most <= cores) return {};
  return fmt::format("{} virtual devices on {} {}: this shows overhead, not speed-up", most, cores,
                     cores == 1 ? "core" : "cores");
}

}  // namespace lockstep::tools
