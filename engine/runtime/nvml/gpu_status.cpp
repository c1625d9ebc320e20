#include "engine/runtime/nvml/gpu_status.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include <fmt/format.h>

#include "engine/core/error.h"
#include "engine/runtime/cpu_cores.h"

namespace lockstep::nvml {

namespace {

std::string user_name(uid_t user) {
  std::vector<char> buffer(16384);
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(user, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) {
    return found->pw_name;
  }
  return std::to_string(user);
}

// Words that others chose: control characters would confuse a terminal.
std::string printable(std::string text) {
  while (!text.empty() && text.back() == '\0') text.pop_back();
  for (char& c : text) {
    if (c >= '\0' && c < ' ') c = ' ';
    if (c == '\x7f') c = '?';
  }
  return text;
}

bool descends_from(int pid, int ancestor) {
  std::optional<int> current = pid;
  while (current && *current != ancestor) current = parent_of(*current);
  return current.has_value();
}

}  // namespace

std::optional<ProcessOwner> find_owner(int pid) {
  struct stat folder {};
  if (stat(fmt::format("/proc/{}", pid).c_str(), &folder) != 0) return std::nullopt;
  std::string command = printable(runtime::read_process_file(pid, "cmdline"));
  if (command.empty()) command = printable(runtime::read_process_file(pid, "comm"));
  return ProcessOwner{user_name(folder.st_uid), command};
}

std::optional<int> parent_of(int pid) {
  const auto found = runtime::read_process_stat(pid);
  if (!found || found->parent <= 0) return std::nullopt;
  return found->parent;
}

bool are_relatives(int a, int b) {
  return descends_from(a, b) || descends_from(b, a);
}

namespace {

// The text that a getter(device..., buffer, length) writes; empty when it fails.
template <typename Function, typename... Args>
std::string read_text(Function function, Args... args) {
  char text[kTextBytes] = {};
  if (call(function, args..., text, kTextBytes) != kSuccess) return {};
  text[kTextBytes - 1] = '\0';
  return text;
}

// The number that a getter(device..., &number) writes.
template <typename Function, typename... Args>
std::optional<unsigned> read_number(Function function, Args... args) {
  unsigned number = 0;
  if (call(function, args..., &number) != kSuccess) return std::nullopt;
  return number;
}

std::optional<double> milli(std::optional<unsigned> thousandths) {
  if (!thousandths) return std::nullopt;
  return *thousandths / 1000.0;
}

// The second version tells what programs use from what the driver reserves; older libraries add
// both.
std::optional<GpuMemory> read_memory(const Api& api, DeviceHandle gpu) {
  MemoryV2 memory{};
  memory.version = kMemoryV2;
  if (call(api.DeviceGetMemoryInfo_v2, gpu, &memory) == kSuccess) {
    return GpuMemory{memory.total, memory.used, memory.free};
  }
  Memory together{};
  if (call(api.DeviceGetMemoryInfo, gpu, &together) != kSuccess) return std::nullopt;
  return GpuMemory{together.total, together.used, together.free};
}

GpuStatus read_gpu(const Library& library, std::size_t index) {
  const Api& api = library.api();
  const DeviceHandle gpu = gpu_handle(library, index);
  GpuStatus status;
  status.index = index;
  status.name = read_text(api.DeviceGetName, gpu);
  status.uuid = read_text(api.DeviceGetUUID, gpu);
  PciInfo pci{};
  if (call(api.DeviceGetPciInfo_v3, gpu, &pci) == kSuccess) status.pci_bus_id = pci.bus_id;
  ComputeCapability capability;
  if (call(api.DeviceGetCudaComputeCapability, gpu, &capability.major, &capability.minor) ==
      kSuccess) {
    status.compute_capability = capability;
  }
  status.memory = read_memory(api, gpu);
  Utilization utilization{};
  if (call(api.DeviceGetUtilizationRates, gpu, &utilization) == kSuccess) {
    status.utilization_percent = utilization.gpu;
  }
  status.temperature_celsius = read_number(api.DeviceGetTemperature, gpu, kTemperatureGpu);
  status.power_watts = milli(read_number(api.DeviceGetPowerUsage, gpu));
  status.power_limit_watts = milli(read_number(api.DeviceGetEnforcedPowerLimit, gpu));
  status.processes = read_processes(library, gpu);
  return status;
}

}  // namespace

DeviceHandle gpu_handle(const Library& library, std::size_t index) {
  DeviceHandle gpu = nullptr;
  const Result result = library.api().DeviceGetHandleByIndex_v2(static_cast<unsigned>(index), &gpu);
  require(result == kSuccess, ErrorCode::Device, "nvml",
          "GPU {} does not answer: '{}'; see nvidia-smi and the kernel's log", index,
          library.describe(result));
  return gpu;
}

std::vector<GpuStatus> read_gpus(const Library& library) {
  unsigned count = 0;
  const Result result = library.api().DeviceGetCount_v2(&count);
  require(result == kSuccess, ErrorCode::Device, "nvml", "GPUs cannot be counted: '{}'",
          library.describe(result));
  std::vector<GpuStatus> gpus;
  for (unsigned index = 0; index < count; ++index) gpus.push_back(read_gpu(library, index));
  return gpus;
}

std::optional<std::vector<GpuProcess>> read_processes(const Library& library, DeviceHandle gpu) {
  const Api& api = library.api();
  const auto list = api.DeviceGetComputeRunningProcesses_v3
                        ? api.DeviceGetComputeRunningProcesses_v3
                        : api.DeviceGetComputeRunningProcesses_v2;
  // Processes may come between two calls, so the list is offered more room until it fits.
  Result result = kInsufficientSize;
  unsigned count = 0;
  std::vector<ProcessInfo> infos;
  for (unsigned room = 32; result == kInsufficientSize && room <= 1u << 16; room *= 4) {
    infos.resize(room);
    count = room;
    result = call(list, gpu, &count, infos.data());
  }
  if (result != kSuccess) return std::nullopt;
  std::vector<GpuProcess> processes;
  for (unsigned i = 0; i < count; ++i) {
    GpuProcess process{static_cast<int>(infos[i].pid), std::nullopt};
    if (infos[i].used_memory != kValueNotAvailable) process.memory_bytes = infos[i].used_memory;
    processes.push_back(process);
  }
  return processes;
}

DriverVersions read_versions(const Library& library) {
  const Api& api = library.api();
  DriverVersions versions;
  versions.driver = read_text(api.SystemGetDriverVersion);
  versions.nvml = read_text(api.SystemGetNVMLVersion);
  int cuda = 0;  // 1000 * major + 10 * minor
  if (call(api.SystemGetCudaDriverVersion_v2, &cuda) == kSuccess) {
    versions.newest_cuda = fmt::format("{}.{}", cuda / 1000, cuda % 1000 / 10);
  }
  return versions;
}

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
