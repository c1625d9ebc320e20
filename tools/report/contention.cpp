#include "tools/report/contention.h"

#include <algorithm>

#include "engine/runtime/physical_gpus.h"
#include "engine/runtime/virtual_devices.h"

namespace lockstep::tools {

nvml::ContentionProbe watch(const std::vector<Device>& devices) {
  std::vector<std::string> uuids;
  for (const Device device : devices) {
    if (device.type != DeviceType::cuda) continue;
    const int gpu = runtime::logical_gpus().at(static_cast<std::size_t>(device.index));
    const std::string& uuid = runtime::physical_gpus().at(static_cast<std::size_t>(gpu)).uuid;
    if (std::find(uuids.begin(), uuids.end(), uuid) == uuids.end()) uuids.push_back(uuid);
  }
  return nvml::ContentionProbe(uuids);
}

std::string contention_mark(const RunRow& row) {
  if (!row.contended) return " contended?";
  return *row.contended ? " contended" : "";
}

std::vector<std::string> contention_notes(const std::vector<RunRow>& rows) {
  const auto any = [&](std::optional<bool> verdict) {
    return std::any_of(rows.begin(), rows.end(),
                       [&](const RunRow& row) { return row.contended == verdict; });
  };
  std::vector<std::string> notes;
  if (any(true)) {
    notes.push_back(
        "contended: another process used the GPU meanwhile, so times may be too long; lockstep "
        "devices shows who, lockstep with-devices waits for idle GPUs");
  }
  if (any(std::nullopt)) {
    notes.push_back(
        "contended?: NVML does not tell whether another process used the GPU meanwhile");
  }
  return notes;
}

}  // namespace lockstep::tools
