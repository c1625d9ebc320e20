#include "tools/record/contention.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"

namespace lockstep::tools {

namespace {

std::vector<std::string> uuids_of(const std::vector<Device>& devices) {
  std::vector<std::string> uuids;
  for (const Device device : devices) {
    if (device.type != DeviceType::cuda) continue;
    const int gpu = runtime::logical_gpus().at(static_cast<std::size_t>(device.index));
    const std::string& uuid = runtime::physical_gpus().at(static_cast<std::size_t>(gpu)).uuid;
    if (std::find(uuids.begin(), uuids.end(), uuid) == uuids.end()) uuids.push_back(uuid);
  }
  return uuids;
}

}  // namespace

ContentionProbe::ContentionProbe(const std::vector<Device>& devices) : gpus_(uuids_of(devices)) {
  if (!devices.empty() && devices[0].type == DeviceType::cpu) cores_.emplace();
}

void ContentionProbe::sample() {
  gpus_.sample();
  if (cores_) cores_->sample();
}

std::optional<bool> ContentionProbe::verdict(std::size_t num_threads,
                                             double cpu_seconds_of_peers) const {
  if (!cores_) return gpus_.verdict();
  runtime::CoreUse use = cores_->use();
  use.own_seconds += cpu_seconds_of_peers;
  return runtime::is_disturbed(use, std::min(num_threads, runtime::num_cores()));
}

std::string contention_mark(const RunRow& row) {
  if (!row.contended) return "?";
  return *row.contended ? "*" : "";
}

std::vector<std::string> contention_notes(const std::vector<RunRow>& rows) {
  const auto any = [&](std::optional<bool> verdict) {
    return std::any_of(rows.begin(), rows.end(),
                       [&](const RunRow& row) { return row.contended == verdict; });
  };
  const bool is_cpu = rows.empty() || rows[0].placement.devices.empty() ||
                      rows[0].placement.devices[0].type == DeviceType::cpu;
  double put_off = 0;
  for (const RunRow& row : rows) {
    if (row.result.acted) put_off = std::max(put_off, row.result.acted->put_off);
  }
  std::vector<std::string> notes;
  if (put_off > kNotablePutOff) {
    notes.push_back(
        fmt::format("* the cores here could not keep up for {:.0f} % of a step, so times are too "
                    "long; use a larger --slow-motion",
                    100 * put_off));
  } else if (any(true)) {
    notes.push_back(
        is_cpu ? "* contended: another process used the cores meanwhile, so times may be too long"
               : "* contended: another process used the GPU meanwhile, so times may be too long; "
                 "lockstep devices shows who, and with --free 1 an idle GPU");
  }
  if (any(std::nullopt)) {
    notes.push_back(
        fmt::format("? contended: {} does not say whether another process used the {} "
                    "meanwhile",
                    is_cpu ? "/proc/stat" : "nvidia-smi", is_cpu ? "cores" : "GPU"));
  }
  return notes;
}

}  // namespace lockstep::tools
