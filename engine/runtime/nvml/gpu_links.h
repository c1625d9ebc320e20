// How the GPUs of this machine reach each other, as `nvidia-smi topo -m` shows it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "engine/runtime/nvml/gpu_status.h"

namespace lockstep::nvml {

// From one GPU to another.
struct GpuLink {
  std::size_t num_nvlinks = 0;      // bonded, directly or through switches
  std::string pcie_path;            // "PIX", "PXB", "PHB", "NODE", "SYS"; empty when not told
  std::optional<bool> peer_access;  // whether it can read the other's memory itself

  // "NV18" where there are NVLinks, else the PCIe path, else "-".
  std::string path() const;
};

// "one PCIe switch" for "PIX"; empty for words that are none of the paths.
std::string explain_path(const std::string& path);

// links[a][b] for the GPUs of read_gpus; links[a][a] means nothing.
// NVLinks to a switch count towards every GPU that has links to switches too, the smaller of both
// numbers: NVSwitches join all GPUs of a machine. Links whose other end is not told do not count.
std::vector<std::vector<GpuLink>> read_links(const Library& library,
                                             const std::vector<GpuStatus>& gpus);

}  // namespace lockstep::nvml
