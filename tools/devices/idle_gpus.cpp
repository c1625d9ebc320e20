#include "tools/devices/idle_gpus.h"

#include <fmt/format.h>

#include "tools/nvml/nvml.h"

namespace lockstep::tools {
namespace {

std::string describe_process(int pid) {
  const auto owner = nvml::find_owner(pid);
  return owner ? fmt::format("pid {} ({}: {})", pid, owner->user, owner->command.substr(0, 40))
               : fmt::format("pid {}", pid);
}

std::string describe_holder(const std::filesystem::path& path) {
  const std::optional<int> pid = named_holder(path);
  return pid ? "locked by " + describe_process(*pid) : "locked";
}

}  // namespace

std::string why_busy(const nvml::GpuStatus& gpu, const IdleLimits& limits) {
  if (gpu.processes && !gpu.processes->empty()) {
    const std::size_t others = gpu.processes->size() - 1;
    return "used by " + describe_process(gpu.processes->front().pid) +
           (others > 0 ? fmt::format(" and {} more", others) : "");
  }
  const std::size_t used_mib = gpu.memory ? gpu.memory->used_bytes >> 20 : 0;
  if (static_cast<double>(used_mib) > limits.max_used_mib) {
    return fmt::format("has {} MiB in use", used_mib);
  }
  if (gpu.utilization_percent.value_or(0) > limits.max_utilization_percent) {
    return fmt::format("is {} % utilised", *gpu.utilization_percent);
  }
  return {};
}

Acquisition try_acquire(const nvml::Library& library, const std::vector<std::size_t>& indices,
                        std::size_t count, const IdleLimits& limits,
                        const std::filesystem::path& folder) {
  const std::optional<FileLock> turn = FileLock::try_lock(folder / "turn.lock");
  if (!turn) return {{}, {"another program is choosing"}};
  const std::vector<nvml::GpuStatus> gpus = nvml::read_gpus(library);
  Acquisition result;
  for (const std::size_t index : indices) {
    if (result.gpus.size() == count) break;
    const nvml::GpuStatus& gpu = gpus.at(index);
    const std::filesystem::path path = folder / (gpu.uuid + ".lock");
    std::optional<FileLock> lock = FileLock::try_lock(path);
    // Who holds the lock says more than what NVML sees of the program.
    const std::string reason = lock ? why_busy(gpu, limits) : describe_holder(path);
    if (!reason.empty()) {
      result.busy.push_back(fmt::format("GPU {} {}", index, reason));
      continue;
    }
    result.gpus.push_back({gpu.uuid, std::move(*lock)});
  }
  if (result.gpus.size() < count) {
    result.gpus.clear();
    return result;
  }
  for (HeldGpu& gpu : result.gpus) gpu.lock.name_holder();
  return result;
}

}  // namespace lockstep::tools
