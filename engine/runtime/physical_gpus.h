// The GPUs of this machine, as CUDA shows them. Here without CUDA's headers, so that everybody may
// ask.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::runtime {

struct PhysicalGpu {
  int ordinal = 0;   // CUDA's number, after CUDA_VISIBLE_DEVICES
  std::string name;  // "NVIDIA H200"
  int major = 0;     // compute capability
  int minor = 0;
  std::size_t memory_bytes = 0;
  int num_multiprocessors = 0;
  std::string uuid;        // "GPU-c0ffee00-...", as nvidia-smi prints it
  std::string pci_bus_id;  // "0000:3b:00.0"
};

// In CUDA's order; empty where there is none. Looked up once.
const std::vector<PhysicalGpu>& physical_gpus();

// Why physical_gpus() is empty, and what to do; empty where it is not. For a driver older than the
// CUDA runtime it names both versions.
const std::string& no_gpu_reason();

// True if GPU `from` reads and writes the memory of GPU `to` itself (CUDA ordinals), or both are
// the same.
bool has_peer_access(int from, int to);

}  // namespace lockstep::runtime
