#include "tools/report/scaling.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/training/placement.h"

namespace lockstep::tools {
namespace {

// The hardware that the row's devices can use at once: a core per thread, at most num_cores; or
// GPUs.
double usable_units(const RunRow& row, std::size_t num_cores) {
  const std::size_t num_threads = row.placement.devices.size() * row.threads_per_device;
  return static_cast<double>(is_on_cores(row) ? std::clamp<std::size_t>(num_threads, 1, num_cores)
                                              : num_physical_devices(row.placement));
}

}  // namespace

bool is_on_cores(const RunRow& row) {
  if (row.result.acted) return false;
  return row.placement.devices.empty() || row.placement.devices[0].type == DeviceType::cpu;
}

Scaling scaling(const RunRow& row, const RunRow& baseline, std::size_t num_cores) {
  const double ideal = usable_units(row, num_cores) / usable_units(baseline, num_cores);
  const double work =
      static_cast<double>(row.epoch_rows) / static_cast<double>(baseline.epoch_rows);
  const double speedup = work * baseline.median_epoch_seconds() / row.median_epoch_seconds();
  return {speedup, ideal, speedup / ideal};
}

const RunRow& baseline_of(const std::vector<RunRow>& rows, std::size_t index) {
  while (index > 0 && rows[index].placement.mode != Mode::single) --index;
  return rows[index];
}

std::string describe_baseline(const RunRow& baseline) {
  const std::size_t threads = baseline.threads_per_device;
  const std::string what =
      baseline.result.acted ? fmt::format("1 {}, acted out", baseline.result.acted->device)
      : is_on_cores(baseline)
          ? fmt::format("1 device with {} {}", threads, threads == 1 ? "thread" : "threads")
          : "1 GPU";
  return fmt::format("baseline: {}, {}", to_string(baseline.placement.mode), what);
}

}  // namespace lockstep::tools
