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
  std::optional<bool> verdict = false;
  for (const auto& [uuid, seen] : seen_) {
    if (seen.pids.contains(getpid())) {  // the numbers are those that this process knows
      if (!seen.strangers.empty()) return true;
    } else if (seen.pids.size() != 1 || seen.num_last != 1) {
      // One process alone, while this one uses the GPU, is this one, by whatever number.
      verdict = std::nullopt;
    }
  }
  return verdict;
}

}  // namespace lockstep::nvml
