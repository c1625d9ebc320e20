#include "tools/devices/pick_devices.h"

#include <algorithm>
#include <numeric>

#include "engine/core/error.h"

namespace lockstep::tools {
namespace {

// The larger, the better. Absent when not told.
std::optional<double> merit(const nvml::GpuStatus& gpu, PickBy by) {
  if (by == PickBy::memory) {
    if (!gpu.memory) return std::nullopt;
    return static_cast<double>(gpu.memory->free_bytes);
  }
  if (!gpu.utilization_percent) return std::nullopt;
  return -static_cast<double>(*gpu.utilization_percent);
}

}  // namespace

std::vector<std::size_t> pick_devices(const GpuList& list, std::size_t count, PickBy by) {
  require(list.nvml_problem.empty(), ErrorCode::Device, "--free", "{}", list.nvml_problem);
  require(count <= list.device_rows.size(), ErrorCode::Usage, "--free",
          "asks for {} devices, and there {} {}{}", count,
          list.device_rows.size() == 1 ? "is" : "are", list.device_rows.size(),
          list.notes.empty() ? "" : "; " + list.notes.front());
  std::vector<double> merits;
  for (const std::size_t row : list.device_rows) {
    const nvml::GpuStatus& gpu = list.rows[row].status;
    const std::optional<double> value = merit(gpu, by);
    require(value.has_value(), ErrorCode::Device, "--free", "GPU {} does not tell its {}",
            gpu.index,
            by == PickBy::memory ? "free memory; try --by utilization"
                                 : "utilization; try --by memory");
    merits.push_back(*value);
  }
  std::vector<std::size_t> ids(merits.size());
  std::iota(ids.begin(), ids.end(), std::size_t{0});
  std::stable_sort(ids.begin(), ids.end(),
                   [&](std::size_t a, std::size_t b) { return merits[a] > merits[b]; });
  ids.resize(count);
  return ids;
}

}  // namespace lockstep::tools
