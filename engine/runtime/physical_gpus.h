// The GPUs of this machine, as CUDA shows them, and the logical devices behind which they stand.
// Declared here without CUDA's headers, so that any code may ask.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::runtime {

struct PhysicalGpu {
  int ordinal = 0;   // CUDA's number, after CUDA_VISIBLE_DEVICES
  std::string name;  // "NVIDIA H200"
  int major = 0;     // compute capability
  int minor = 0;
  std::size_t memory_bytes = 0;
  std::string uuid;        // "GPU-c0ffee00-...", as nvidia-smi prints it
  std::string pci_bus_id;  // "0000:3b:00.0"
};

// In CUDA's order; empty if there are none. Looked up once.
const std::vector<PhysicalGpu>& physical_gpus();

// Why physical_gpus() is empty, and what to do about it; empty if it is not. For a driver older
// than the CUDA runtime it names both versions.
const std::string& no_gpu_reason();

// True if GPU `from` can access the memory of GPU `to` itself (CUDA ordinals), or both are the
// same.
bool has_peer_access(int from, int to);
// From now on has_peer_access(from, to) is false: CUDA promised access and then refused it.
void deny_peer_access(int from, int to);

// The physical GPU behind each logical CUDA device (virtual_devices.cpp).
//
// By default cuda:i is GPU i. LOCKSTEP_VIRTUAL_DEVICES, or set_virtual_devices(),
// declares otherwise: "cuda:0*4" makes four logical devices of GPU 0, "cuda:0*2,cuda:1*2" two of
// each.

// "cuda:0*2,cuda:1" as {0, 0, 1}: the physical GPU of each logical device.
// Throws Error{Usage} for words without meaning or GPUs beyond num_gpus; it says which exist.
std::vector<int> parse_virtual_devices(std::string_view text, int num_gpus);

// Declares the logical devices of this process; the same text again changes nothing.
// Throws Error{Device} if there is no GPU, Error{State} once a CUDA device is in use.
void set_virtual_devices(std::string_view text);

// The physical GPU (CUDA ordinal) of cuda:0, cuda:1, ...; empty without a GPU.
std::vector<int> logical_gpus();

// True if the user declared the logical devices.
bool has_virtual_devices();

}  // namespace lockstep::runtime
