#include "engine/runtime/nvml/gpu_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace lockstep::nvml {
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

// Where the active NVLinks of one GPU end.
struct NvLinkEnds {
  std::map<std::string, std::size_t> gpus;  // by PCI bus id
  std::size_t num_to_switches = 0;
};

NvLinkEnds read_nvlink_ends(const Api& api, DeviceHandle gpu) {
  NvLinkEnds ends;
  for (unsigned link = 0; link < kMaxNvLinks; ++link) {
    EnableState state = kDisabled;
    if (call(api.DeviceGetNvLinkState, gpu, link, &state) != kSuccess) continue;
    if (state != kEnabled) continue;
    NvLinkRemote remote = kRemoteGpu;
    if (call(api.DeviceGetNvLinkRemoteDeviceType, gpu, link, &remote) == kSuccess &&
        remote == kRemoteSwitch) {
      ++ends.num_to_switches;
      continue;
    }
    PciInfo pci{};
    if (call(api.DeviceGetNvLinkRemotePciInfo_v2, gpu, link, &pci) == kSuccess) {
      ++ends.gpus[pci.bus_id];
    }
  }
  return ends;
}

std::size_t count_nvlinks(const NvLinkEnds& from, const NvLinkEnds& to,
                          const std::string& to_bus_id) {
  const auto direct = from.gpus.find(to_bus_id);
  return (direct == from.gpus.end() ? 0 : direct->second) +
         std::min(from.num_to_switches, to.num_to_switches);
}

std::string read_pcie_path(const Api& api, DeviceHandle from, DeviceHandle to) {
  TopologyLevel level{};
  if (call(api.DeviceGetTopologyCommonAncestor, from, to, &level) != kSuccess) return {};
  for (const PcieWord& entry : kPcieWords) {
    if (entry.level == level) return entry.word;
  }
  return {};
}

std::optional<bool> read_peer_access(const Api& api, DeviceHandle from, DeviceHandle to) {
  P2PStatus status{};
  if (call(api.DeviceGetP2PStatus, from, to, kP2PRead, &status) != kSuccess) return std::nullopt;
  return status == kP2POk;
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
  const Api& api = library.api();
  std::vector<DeviceHandle> handles;
  std::vector<NvLinkEnds> ends;
  for (const GpuStatus& gpu : gpus) {
    handles.push_back(gpu_handle(library, gpu.index));
    ends.push_back(read_nvlink_ends(api, handles.back()));
  }
  std::vector<std::vector<GpuLink>> links(gpus.size(), std::vector<GpuLink>(gpus.size()));
  for (std::size_t a = 0; a < gpus.size(); ++a) {
    for (std::size_t b = 0; b < gpus.size(); ++b) {
      if (a == b) continue;
      links[a][b].num_nvlinks = count_nvlinks(ends[a], ends[b], gpus[b].pci_bus_id);
      links[a][b].pcie_path = read_pcie_path(api, handles[a], handles[b]);
      links[a][b].peer_access = read_peer_access(api, handles[a], handles[b]);
    }
  }
  return links;
}

}  // namespace lockstep::nvml
