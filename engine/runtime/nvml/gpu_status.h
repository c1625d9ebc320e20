// What NVML says about the GPUs of this machine at one instant, as plain values.
//
// All of them, whatever CUDA_VISIBLE_DEVICES says, in the order of their PCI bus ids, which is how
// nvidia-smi counts. A value that the GPU, the driver or the library does not tell is absent.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "engine/runtime/nvml/library.h"

namespace lockstep::nvml {

struct GpuProcess {
  int pid = 0;
  std::optional<std::size_t> memory_bytes;

  bool operator==(const GpuProcess&) const = default;
};

struct GpuMemory {
  std::size_t total_bytes = 0;
  std::size_t used_bytes = 0;  // by programs; what the driver reserves is neither used nor free
  std::size_t free_bytes = 0;
};

struct ComputeCapability {
  int major = 0;
  int minor = 0;
};

struct GpuStatus {
  std::size_t index = 0;   // nvidia-smi's number
  std::string name;        // "NVIDIA H200"
  std::string uuid;        // "GPU-c0ffee00-..."
  std::string pci_bus_id;  // "00000000:3B:00.0"
  std::optional<ComputeCapability> compute_capability;
  std::optional<GpuMemory> memory;
  std::optional<unsigned> utilization_percent;  // time with a kernel running, last sample period
  std::optional<unsigned> temperature_celsius;
  std::optional<double> power_watts;
  std::optional<double> power_limit_watts;
  std::optional<std::vector<GpuProcess>> processes;  // those with a compute context
};

// Every GPU. REQUIRES: library.available(). Throws Error{Device} when GPUs cannot be listed.
std::vector<GpuStatus> read_gpus(const Library& library);

// The processes with a compute context on a GPU; absent when NVML does not tell.
std::optional<std::vector<GpuProcess>> read_processes(const Library& library, DeviceHandle gpu);

// The GPU behind a number of read_gpus. Throws Error{Device}.
DeviceHandle gpu_handle(const Library& library, std::size_t index);

struct DriverVersions {
  std::string driver;       // "580.65.06"; empty when not told
  std::string nvml;         // "13.580.65.06"
  std::string newest_cuda;  // the newest CUDA runtime that the driver serves: "13.0"
};
DriverVersions read_versions(const Library& library);

}  // namespace lockstep::nvml
