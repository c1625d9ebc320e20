// The machine's GPUs as nvidia-smi and CUDA together see them; gpu_table.h shows them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "engine/runtime/physical_gpus.h"
#include "tools/devices/nvidia_smi.h"

namespace lockstep::tools {

// CUDA's view, from engine/runtime.
struct CudaView {
  std::vector<runtime::PhysicalGpu> gpus;
  std::string problem;                         // why there are none
  std::vector<int> logical_gpus;               // the GPU (position in gpus) of cuda:0, cuda:1, ...
  std::vector<std::vector<bool>> peer_access;  // [from][to]
};
CudaView read_cuda();

struct GpuRow {
  // From nvidia-smi. For a GPU that only CUDA knows, from CUDA, with an index after the last.
  GpuStatus status;
  std::vector<int> logical_ids;  // {0, 1}: cuda:0 and cuda:1 are this GPU
  enum class Visibility { visible, hidden } visibility = Visibility::visible;
};

struct GpuList {
  std::vector<GpuRow> rows;
  MachineGpus machine;                         // its links are [row][row]
  std::string cuda_problem;                    // empty if this program can use a GPU
  std::optional<std::string> visible_devices;  // CUDA_VISIBLE_DEVICES
  std::vector<std::string> notes;              // one line each about what is hidden or wrong

  // The row of cuda:0, cuda:1, ... If this program cannot use GPUs (cuda_problem), the rows that
  // would be cuda:0, ... in a program that can, counted in the order of PCI bus ids.
  std::vector<std::size_t> device_rows;
};

// visible_devices is the environment's CUDA_VISIBLE_DEVICES.
GpuList list_gpus(const MachineGpus& machine, const CudaView& cuda,
                  const std::optional<std::string>& visible_devices);

// The same for this machine and this process's environment.
GpuList list_gpus();

struct GpuUuids {
  std::string gpu;                       // "GPU-c0ffee00-..."
  std::vector<std::string> slices = {};  // of its MIG instances: "MIG-1f2a..."
};

struct VisibleGpus {
  std::vector<std::size_t> gpus;      // numbers of GPUs, in the order of cuda:0, cuda:1, ...
  std::vector<std::string> problems;  // a sentence for each entry that adds no GPU
};

// Reads the variable's text as CUDA does: numbers or beginnings of UUIDs, up to the first entry
// that names no GPU; a GPU named twice hides all. A MIG slice ("MIG-1f2a...", or in the older form
// "MIG-GPU-c0ffee00-.../1/0") makes its GPU visible and ends the list: a program sees only one
// slice. Absent text means all GPUs, empty text none. Numbers count the GPUs in the order of
// `uuids`, which is CUDA's if CUDA_DEVICE_ORDER=PCI_BUS_ID or all GPUs are of one kind.
// Source: CUDA C++ Programming Guide, environment variables; PyTorch's torch.cuda follows the same
// rules.
VisibleGpus read_visible_devices(const std::optional<std::string>& text,
                                 const std::vector<GpuUuids>& uuids);

// Ids of the `count` logical devices with the most free memory: the most first, and smaller ids
// first among equals.
// Throws Error{Usage} if there are fewer, Error{Device} if a GPU or nvidia-smi does not tell.
std::vector<std::size_t> pick_devices(const GpuList& list, std::size_t count);

}  // namespace lockstep::tools
