#include "tools/compare_rows.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "engine/runtime/logical_device.h"
#include "tools/cli/numbers.h"
#include "tools/training/placement.h"
#include "tools/training/slow_motion.h"

namespace lockstep::tools {
namespace {

const std::array<std::string, 2> kModes = {"dp", "ddp"};

std::vector<Mode> parse_modes(std::string_view text) {
  std::vector<Mode> modes;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view name = text.substr(0, comma);
    require(name == "dp" || name == "ddp", ErrorCode::Usage, "--modes",
            "unknown mode '{}'; use dp, ddp or dp,ddp{}", name, did_you_mean(name, kModes));
    modes.push_back(name == "dp" ? Mode::data_parallel : Mode::ddp);
    if (comma == std::string_view::npos) return modes;
    text.remove_prefix(comma + 1);
  }
}

std::vector<std::size_t> parse_device_counts(const std::string& text) {
  const std::vector<std::size_t> counts = parse_list("--devices", text);
  for (const std::size_t count : counts) {
    require(count >= 1 && count <= 4096, ErrorCode::Usage, "--devices",
            "expected counts such as 1,2,4,8, found {}", count);
  }
  return counts;
}

bool are_missing(std::size_t count, DeviceType type) {
  return type == DeviceType::cuda && count > static_cast<std::size_t>(runtime::num_devices(type));
}

std::vector<DevicePlacement> list_placements(TrainingFlags flags, const std::string& modes,
                                             const std::vector<std::size_t>& device_counts,
                                             DeviceType type, MissingDevices missing) {
  std::vector<DevicePlacement> placements{{Mode::single, {Device{type, 0}}}};
  for (const Mode mode : parse_modes(modes)) {
    for (const std::size_t count : device_counts) {
      flags.devices = static_cast<int>(count);
      if (missing == MissingDevices::are_predicted && are_missing(count, type)) {
        placements.push_back({mode, {}, std::nullopt});
        for (std::size_t i = 0; i < count; ++i) {
          placements.back().devices.push_back({type, static_cast<int>(i)});
        }
        continue;
      }
      placements.push_back({mode, resolve_devices(flags, type)});
      require_on_stage(flags, placements.back().devices);
    }
  }
  return placements;
}

std::vector<std::optional<std::size_t>> list_groups(const TrainingFlags& flags) {
  if (flags.per_device_batch.empty()) return {std::nullopt};
  std::vector<std::optional<std::size_t>> groups;
  for (const std::size_t rows : parse_list("--per-device-batch", flags.per_device_batch)) {
    require(rows >= 1, ErrorCode::Usage, "--per-device-batch", "must be at least 1, found 0");
    groups.emplace_back(rows);
  }
  return groups;
}

}  // namespace

std::vector<PlannedRow> plan_rows(const TrainingFlags& flags, const std::string& modes,
                                  const std::string& device_counts, DeviceType type,
                                  MissingDevices missing) {
  const std::vector<std::size_t> counts = parse_device_counts(device_counts);
  const std::vector<DevicePlacement> placements =
      list_placements(flags, modes, counts, type, missing);
  const std::vector<std::optional<std::size_t>> groups = list_groups(flags);
  TrainingFlags of_all = flags;
  of_all.per_device_batch.clear();
  if (flags.bitwise) {
    for (const std::size_t count : counts) read_task(of_all, count);
  }
  const TrainingTask task = make_task(of_all, *std::max_element(counts.begin(), counts.end()));
  std::vector<PlannedRow> rows;
  for (const std::optional<std::size_t> rows_per_device : groups) {
    for (const DevicePlacement& placement : placements) {
      const std::size_t num_devices = placement.devices.size();
      const std::size_t batch = rows_per_device ? *rows_per_device * num_devices : task.batch;
      require(!rows_per_device || batch <= task.data->train.num_rows(), ErrorCode::Usage,
              "--per-device-batch", "{} rows on each of {} devices are more than the {} of {}",
              *rows_per_device, num_devices, task.data->train.num_rows(), flags.dataset);
      rows.push_back({placement, with_batch(task, flags, batch), rows_per_device,
                      are_missing(num_devices, type)});
      require_fitting_sampler(rows.back().task, placement);
    }
  }
  return rows;
}

}  // namespace lockstep::tools
