#include "tools/nvml/nvml.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "engine/core/error.h"
#include "engine/runtime/cpu_cores.h"

namespace lockstep::nvml {

Library::Library() : file_(runtime::library_path("LOCKSTEP_NVML_LIBRARY", "libnvidia-ml.so.1")) {
  if (!file_.is_loaded()) {
    problem_ = fmt::format("no NVML: {} (it comes with NVIDIA's driver)", file_.problem());
    return;
  }
  const Result result = call("nvmlInit_v2");
  is_initialised_ = result == kSuccess;
  if (result == kFunctionNotFound) {
    problem_ = fmt::format("no NVML: {} lacks nvmlInit_v2", file_.path());
  } else if (!is_initialised_) {
    problem_ = fmt::format("no NVML: nvmlInit_v2 says '{}'", describe(result));
  }
}

Library::~Library() {
  if (is_initialised_) call("nvmlShutdown");
}

std::string Library::describe(Result result) const {
  const char* (*error_string)(Result) = nullptr;
  file_.find("nvmlErrorString", error_string);
  if (error_string != nullptr) return error_string(result);
  return fmt::format("error {}", static_cast<int>(result));
}

// --- this machine's processes, from /proc ---

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

// Replaces control characters, which would confuse a terminal, in text of other programs.
std::string printable(std::string text) {
  while (!text.empty() && text.back() == '\0') text.pop_back();
  for (char& c : text) {
    if (c >= '\0' && c < ' ') c = ' ';
    if (c == '\x7f') c = '?';
  }
  return text;
}

bool descends_from(int pid, int ancestor) {
  while (pid > 0 && pid != ancestor) pid = runtime::parent_of(pid).value_or(0);
  return pid == ancestor;
}

}  // namespace

std::optional<ProcessOwner> find_owner(int pid) {
  struct stat folder {};
  if (stat(fmt::format("/proc/{}", pid).c_str(), &folder) != 0) return std::nullopt;
  std::string command = printable(runtime::read_process_file(pid, "cmdline"));
  if (command.empty()) command = printable(runtime::read_process_file(pid, "comm"));
  return ProcessOwner{user_name(folder.st_uid), command};
}

bool are_relatives(int a, int b) {
  return descends_from(a, b) || descends_from(b, a);
}

// --- facts about a GPU ---

namespace {

// The text that function(args..., buffer, length) writes; empty if it fails.
template <typename... Args>
std::string read_text(const Library& library, const char* name, Args... args) {
  char text[kTextBytes] = {};
  if (library.call(name, args..., &text[0], kTextBytes) != kSuccess) return {};
  text[kTextBytes - 1] = '\0';
  return text;
}

// The number that function(args..., &number) writes.
template <typename... Args>
std::optional<unsigned> read_number(const Library& library, const char* name, Args... args) {
  unsigned number = 0;
  if (library.call(name, args..., &number) != kSuccess) return std::nullopt;
  return number;
}

std::optional<double> milli(std::optional<unsigned> thousandths) {
  if (!thousandths) return std::nullopt;
  return *thousandths / 1000.0;
}

DeviceHandle gpu_handle(const Library& library, std::size_t index) {
  DeviceHandle gpu = nullptr;
  const Result result =
      library.call("nvmlDeviceGetHandleByIndex_v2", static_cast<unsigned>(index), &gpu);
  require(result == kSuccess, ErrorCode::Device, "nvml",
          "GPU {} does not answer: '{}'; see nvidia-smi and the kernel's log", index,
          library.describe(result));
  return gpu;
}

std::optional<GpuMemory> read_memory(const Library& library, DeviceHandle gpu) {
  MemoryV2 memory{};
  memory.version = kMemoryV2;
  if (library.call("nvmlDeviceGetMemoryInfo_v2", gpu, &memory) != kSuccess) return std::nullopt;
  return GpuMemory{memory.total, memory.used, memory.free};
}

// Absent if NVML does not say.
std::optional<std::vector<GpuProcess>> read_processes(const Library& library, DeviceHandle gpu) {
  Result result = kInsufficientSize;
  unsigned count = 0;
  std::vector<ProcessInfo> infos;
  // Processes may start between two calls, so the list gets more room until it fits.
  for (unsigned room = 32; result == kInsufficientSize && room <= 1u << 16; room *= 4) {
    infos.resize(room);
    count = room;
    result = library.call("nvmlDeviceGetComputeRunningProcesses_v3", gpu, &count, infos.data());
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

std::vector<std::string> read_slices(const Library& library, DeviceHandle gpu) {
  std::vector<std::string> uuids;
  const unsigned most = read_number(library, "nvmlDeviceGetMaxMigDeviceCount", gpu).value_or(0);
  for (unsigned i = 0; i < most; ++i) {
    DeviceHandle slice = nullptr;
    if (library.call("nvmlDeviceGetMigDeviceHandleByIndex", gpu, i, &slice) != kSuccess) continue;
    uuids.push_back(read_text(library, "nvmlDeviceGetUUID", slice));
  }
  return uuids;
}

GpuStatus read_gpu(const Library& library, std::size_t index) {
  const DeviceHandle gpu = gpu_handle(library, index);
  GpuStatus status;
  status.index = index;
  status.name = read_text(library, "nvmlDeviceGetName", gpu);
  status.uuid = read_text(library, "nvmlDeviceGetUUID", gpu);
  PciInfo pci{};
  if (library.call("nvmlDeviceGetPciInfo_v3", gpu, &pci) == kSuccess) {
    status.pci_bus_id = pci.bus_id;
  }
  ComputeCapability capability;
  if (library.call("nvmlDeviceGetCudaComputeCapability", gpu, &capability.major,
                   &capability.minor) == kSuccess) {
    status.compute_capability = capability;
  }
  status.memory = read_memory(library, gpu);
  Utilization utilization{};
  if (library.call("nvmlDeviceGetUtilizationRates", gpu, &utilization) == kSuccess) {
    status.utilization_percent = utilization.gpu;
  }
  status.temperature_celsius =
      read_number(library, "nvmlDeviceGetTemperature", gpu, kTemperatureGpu);
  status.power_watts = milli(read_number(library, "nvmlDeviceGetPowerUsage", gpu));
  status.power_limit_watts = milli(read_number(library, "nvmlDeviceGetEnforcedPowerLimit", gpu));
  status.processes = read_processes(library, gpu);
  status.slices = read_slices(library, gpu);
  return status;
}

}  // namespace

std::vector<GpuStatus> read_gpus(const Library& library) {
  unsigned count = 0;
  const Result result = library.call("nvmlDeviceGetCount_v2", &count);
  require(result == kSuccess, ErrorCode::Device, "nvml", "GPUs cannot be counted: '{}'",
          library.describe(result));
  std::vector<GpuStatus> gpus;
  for (unsigned index = 0; index < count; ++index) gpus.push_back(read_gpu(library, index));
  return gpus;
}

DriverVersions read_versions(const Library& library) {
  DriverVersions versions;
  versions.driver = read_text(library, "nvmlSystemGetDriverVersion");
  versions.nvml = read_text(library, "nvmlSystemGetNVMLVersion");
  int cuda = 0;  // 1000 * major + 10 * minor
  if (library.call("nvmlSystemGetCudaDriverVersion_v2", &cuda) == kSuccess) {
    versions.newest_cuda = fmt::format("{}.{}", cuda / 1000, cuda % 1000 / 10);
  }
  return versions;
}

// --- how GPUs reach each other ---

namespace {

struct PcieWord {
  TopologyLevel level;
  const char* word;
  const char* meaning;
};
constexpr PcieWord kPcieWords[] = {
    {kTopologyInternal, "PIX", "one PCIe switch"},
    {kTopologySingle, "PIX", "one PCIe switch"},
    {kTopologyMultiple, "PXB", "several PCIe switches, no host bridge"},
    {kTopologyHostBridge, "PHB", "a PCIe host bridge, in the CPU"},
    {kTopologyNode, "NODE", "several host bridges of one NUMA node"},
    {kTopologySystem, "SYS", "the interconnect between NUMA nodes"},
};

// The ends of one GPU's active NVLinks.
struct NvLinkEnds {
  std::map<std::string, std::size_t> gpus;  // by PCI bus id
  std::size_t num_to_switches = 0;
};

NvLinkEnds read_nvlink_ends(const Library& library, DeviceHandle gpu) {
  NvLinkEnds ends;
  for (unsigned link = 0; link < kMaxNvLinks; ++link) {
    EnableState state = kDisabled;
    const Result result = library.call("nvmlDeviceGetNvLinkState", gpu, link, &state);
    if (result != kSuccess || state != kEnabled) continue;
    NvLinkRemote remote = kRemoteGpu;
    PciInfo pci{};
    if (library.call("nvmlDeviceGetNvLinkRemoteDeviceType", gpu, link, &remote) == kSuccess &&
        remote == kRemoteSwitch) {
      ++ends.num_to_switches;
    } else if (library.call("nvmlDeviceGetNvLinkRemotePciInfo_v2", gpu, link, &pci) == kSuccess) {
      ++ends.gpus[pci.bus_id];
    }
  }
  return ends;
}

GpuLink read_link(const Library& library, DeviceHandle from, DeviceHandle to) {
  GpuLink link;
  TopologyLevel level{};
  if (library.call("nvmlDeviceGetTopologyCommonAncestor", from, to, &level) == kSuccess) {
    for (const PcieWord& entry : kPcieWords) {
      if (entry.level == level) link.pcie_path = entry.word;
    }
  }
  P2PStatus status{};
  if (library.call("nvmlDeviceGetP2PStatus", from, to, kP2PRead, &status) == kSuccess) {
    link.peer_access = status == kP2POk;
  }
  return link;
}

}  // namespace

std::string GpuLink::path() const {
  if (num_nvlinks > 0) return fmt::format("NV{}", num_nvlinks);
  return pcie_path.empty() ? "-" : pcie_path;
}

std::string explain_path(const std::string& path) {
  if (path.starts_with("NV")) return "that many bonded NVLinks";
  for (const PcieWord& entry : kPcieWords) {
    if (path == entry.word) return entry.meaning;
  }
  return {};
}

std::vector<std::vector<GpuLink>> read_links(const Library& library,
                                             const std::vector<GpuStatus>& gpus) {
  std::vector<DeviceHandle> handles;
  std::vector<NvLinkEnds> ends;
  for (const GpuStatus& gpu : gpus) {
    handles.push_back(gpu_handle(library, gpu.index));
    ends.push_back(read_nvlink_ends(library, handles.back()));
  }
  std::vector<std::vector<GpuLink>> links(gpus.size(), std::vector<GpuLink>(gpus.size()));
  for (std::size_t a = 0; a < gpus.size(); ++a) {
    for (std::size_t b = 0; b < gpus.size(); ++b) {
      if (a == b) continue;
      links[a][b] = read_link(library, handles[a], handles[b]);
      const auto direct = ends[a].gpus.find(gpus[b].pci_bus_id);
      links[a][b].num_nvlinks = (direct == ends[a].gpus.end() ? 0 : direct->second) +
                                std::min(ends[a].num_to_switches, ends[b].num_to_switches);
    }
  }
  return links;
}

// --- did another job use the GPUs? ---

ContentionProbe::ContentionProbe(std::vector<std::string> uuids) : uuids_(std::move(uuids)) {
  if (uuids_.empty()) return;
  library_ = std::make_unique<Library>();
  is_blind_ = !library_->available();
}

void ContentionProbe::sample() {
  for (const std::string& uuid : uuids_) {
    if (is_blind_) return;
    DeviceHandle gpu = nullptr;
    std::optional<std::vector<GpuProcess>> processes;
    if (library_->call("nvmlDeviceGetHandleByUUID", uuid.c_str(), &gpu) == kSuccess) {
      processes = read_processes(*library_, gpu);
    }
    is_blind_ = !processes.has_value();
    if (is_blind_) return;
    Seen& seen = seen_[uuid];
    seen.num_last = processes->size();
    for (const GpuProcess& process : *processes) {
      if (!seen.pids.insert(process.pid).second) continue;
      if (!are_relatives(process.pid, getpid())) seen.strangers.insert(process.pid);
    }
  }
}

std::optional<bool> ContentionProbe::verdict() const {
  if (uuids_.empty()) return false;
  if (is_blind_ || seen_.size() < uuids_.size()) return std::nullopt;
  bool knows_numbers = false;  // this process is listed by its own number
  bool any_stranger = false;
  bool alone = true;
  for (const auto& [uuid, seen] : seen_) {
    knows_numbers = knows_numbers || seen.pids.contains(getpid());
    any_stranger = any_stranger || !seen.strangers.empty();
    // A single process on a GPU that this process uses must be this process, whatever its number.
    alone = alone && seen.pids.size() == 1 && seen.num_last == 1;
  }
  if (knows_numbers) return any_stranger;
  if (alone) return false;
  return std::nullopt;
}

}  // namespace lockstep::nvml
