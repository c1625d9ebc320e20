// The machine's GPUs as NVML and CUDA see them, put together: what `lockstep devices` shows.
//
// This folder is a small library of its own (gpu_tools) for machines that several people share; no
// training needs it. Only `lockstep devices` uses it. It asks
// tools/nvml what the driver says, and engine/runtime which GPUs this program would use.
//   gpu_list.h      what there is; read this header first
//   visible_gpus.h  what CUDA_VISIBLE_DEVICES leaves of it
//   pick_devices.h  which devices a program that starts now had best take
//   gpu_table.h     the list for people, and as JSON (text_table.h: columns)
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "engine/runtime/physical_gpus.h"
#include "tools/nvml/nvml.h"

namespace lockstep::tools {

// CUDA's side, as engine/runtime tells it.
struct CudaView {
  std::vector<runtime::PhysicalGpu> gpus;
  std::string problem;                         // why there are none
  std::vector<int> logical_gpus;               // the GPU (position in gpus) of cuda:0, cuda:1, ...
  std::vector<std::vector<bool>> peer_access;  // [from][to]
};
CudaView read_cuda();

struct GpuRow {
  // Of NVML; of a GPU that only CUDA knows: what CUDA tells, and an index behind NVML's last.
  nvml::GpuStatus status;
  std::vector<int> logical_ids;  // {0, 1}: cuda:0 and cuda:1 are this GPU
  enum class Visibility { visible, hidden } visibility = Visibility::visible;
};

struct GpuList {
  std::vector<GpuRow> rows;
  std::vector<std::vector<nvml::GpuLink>> links;  // [row][row]
  nvml::DriverVersions versions;
  std::string nvml_problem;                    // empty where there is NVML
  std::string cuda_problem;                    // empty where this program can use a GPU
  std::optional<std::string> visible_devices;  // CUDA_VISIBLE_DEVICES
  std::vector<std::string> notes;              // what is hidden or wrong, a line each

  // The row of cuda:0, cuda:1, ... Where this program cannot use GPUs (cuda_problem): of what would
  // be cuda:0, ... in a program that can, counting in the order of PCI bus ids.
  std::vector<std::size_t> device_rows;
};

// visible_devices is the environment's CUDA_VISIBLE_DEVICES.
GpuList list_gpus(const nvml::Library& library, const CudaView& cuda,
                  const std::optional<std::string>& visible_devices);

// The same, of this process.
GpuList list_gpus(const nvml::Library& library);

}  // namespace lockstep::tools
