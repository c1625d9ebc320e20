#include "engine/runtime/nvml/contention.h"

#include <unistd.h>

#include "engine/runtime/nvml/gpu_status.h"
#include "engine/runtime/nvml/processes.h"

namespace lockstep::nvml {
namespace {

std::optional<std::vector<GpuProcess>> processes_on(const Library& library,
                                                    const std::string& uuid) {
  DeviceHandle gpu = nullptr;
  if (call(library.api().DeviceGetHandleByUUID, uuid.c_str(), &gpu) != kSuccess) {
    return std::nullopt;
  }
  return read_processes(library, gpu);
}

}  // namespace

ContentionProbe::ContentionProbe(std::vector<std::string> uuids) : uuids_(std::move(uuids)) {
  if (uuids_.empty()) return;
  library_ = std::make_unique<Library>();
  is_blind_ = !library_->available();
}

void ContentionProbe::sample() {
  const int self = getpid();
  for (const std::string& uuid : uuids_) {
    if (is_blind_) return;
    const std::optional<std::vector<GpuProcess>> processes = processes_on(*library_, uuid);
    is_blind_ = !processes.has_value();
    if (is_blind_) return;
    Seen& seen = seen_[uuid];
    seen.num_last = processes->size();
    for (const GpuProcess& process : *processes) {
      if (!seen.pids.insert(process.pid).second) continue;
      if (!are_relatives(process.pid, self)) seen.strangers.insert(process.pid);
    }
  }
}

std::optional<bool> ContentionProbe::verdict() const {
  if (uuids_.empty()) return false;
  if (is_blind_ || seen_.size() < uuids_.size()) return std::nullopt;
  bool knows_numbers = false;  // this process is listed by the number that it knows
  bool any_stranger = false;
  bool alone = true;
  for (const auto& [uuid, seen] : seen_) {
    knows_numbers = knows_numbers || seen.pids.contains(getpid());
    any_stranger = any_stranger || !seen.strangers.empty();
    // One process alone on a GPU that this process uses is this process, by whatever number.
    alone = alone && seen.pids.size() == 1 && seen.num_last == 1;
  }
  if (knows_numbers) return any_stranger;
  if (alone) return false;
  return std::nullopt;
}

}  // namespace lockstep::nvml
