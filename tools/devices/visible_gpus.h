// What CUDA_VISIBLE_DEVICES leaves of a machine's GPUs, for people who wonder where one went.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::tools {

struct GpuUuids {
  std::string gpu;                       // "GPU-c0ffee00-..."
  std::vector<std::string> slices = {};  // of its MIG instances: "MIG-1f2a..."
};

struct VisibleGpus {
  std::vector<std::size_t> gpus;      // numbers of GPUs, in the order of cuda:0, cuda:1, ...
  std::vector<std::string> problems;  // a sentence for each entry that does not mean one more GPU
};

// Reads the variable's text as CUDA does: numbers or beginnings of UUIDs, up to the first entry
// that names no GPU; a GPU that stands twice hides all. A MIG slice ("MIG-1f2a...", or in the older
// form "MIG-GPU-c0ffee00-.../1/0") makes its GPU visible, and nothing behind it: a program sees one
// slice. Absent text: all GPUs; empty: none. Numbers
// count the GPUs in the order of `uuids`, which is CUDA's where CUDA_DEVICE_ORDER=PCI_BUS_ID or all
// GPUs are of one kind. Source: CUDA C++ Programming Guide, environment variables; PyTorch's
// torch.cuda follows the same rules.
VisibleGpus read_visible_devices(const std::optional<std::string>& text,
                                 const std::vector<GpuUuids>& uuids);

}  // namespace lockstep::tools
