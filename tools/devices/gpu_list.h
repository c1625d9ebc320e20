// The machine's GPUs as nvidia-smi and CUDA together see them.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/runtime/physical_gpus.h"

namespace lockstep::tools {

// CUDA's view, from engine/runtime.
struct CudaView {
  std::vector<runtime::PhysicalGpu> gpus;
  std::string problem;            // why there are none
  std::vector<int> logical_gpus;  // the GPU (position in gpus) of cuda:0, cuda:1, ...
};

struct GpuList {
  // `lockstep.devices/1` without schema and host (docs/formats.md). A GPU that only CUDA knows
  // comes after those of nvidia-smi.
  nlohmann::ordered_json json;

  // The position in json["gpus"] of cuda:0, cuda:1, ... If this program cannot use GPUs
  // (cuda_problem), those that would be cuda:0, ... in a program that can, counted in the order of
  // PCI bus ids.
  std::vector<std::size_t> device_rows;
  bool is_slice = false;  // CUDA_VISIBLE_DEVICES leaves one slice of one GPU
};

// machine: from read_nvidia_smi(). visible_devices: the environment's CUDA_VISIBLE_DEVICES.
GpuList list_gpus(const nlohmann::ordered_json& machine, const CudaView& cuda,
                  const std::optional<std::string>& visible_devices);

// The same for this machine and this process's environment.
GpuList list_gpus();

struct VisibleGpus {
  std::vector<std::size_t> gpus;  // numbers of GPUs, in the order of cuda:0, cuda:1, ...
  std::string problem;            // a sentence about the entry at which CUDA stops; or empty
  bool is_slice = false;          // of the one GPU, a program sees one slice
};

// Reads the variable's text as CUDA does: numbers or beginnings of UUIDs, up to the first entry
// that names no GPU; a GPU named twice hides all. A MIG slice ("MIG-1f2a...", or in the older form
// "MIG-GPU-c0ffee00-.../1/0") makes its GPU visible and ends the list: a program sees only one
// slice. Absent text means all GPUs, empty text none. Numbers count the GPUs in the order of
// `gpus` (their "uuid" and "slices"), which is CUDA's if CUDA_DEVICE_ORDER=PCI_BUS_ID or all GPUs
// are of one kind.
// Source: CUDA C++ Programming Guide, environment variables; PyTorch's torch.cuda follows the same
// rules.
VisibleGpus read_visible_devices(const std::optional<std::string>& text,
                                 const nlohmann::ordered_json& gpus);

// Three parts: a line per GPU in the style of nvidia-smi, its processes, and with two GPUs or more
// how they reach each other; then the notes. An unknown value is "-". Empty without a GPU.
std::string gpu_table(const nlohmann::ordered_json& list);

// UUIDs of `count` GPUs that a program may use (CUDA_VISIBLE_DEVICES) and nobody does: without
// processes, with at most 512 MiB in use and at most 5 % utilised. Those with the most free memory
// come first, and smaller numbers among equals. A slice does not count as its GPU.
// Throws Error{Device} that says why not if there are fewer, or if nvidia-smi fails.
std::vector<std::string> idle_gpus(const GpuList& list, std::size_t count);

}  // namespace lockstep::tools
