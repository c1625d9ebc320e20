// Copies between the memories of two devices, in the order of their compute streams.
#pragma once

#include <cstddef>

#include "engine/runtime/logical_device.h"

namespace lockstep::runtime {

// One side of a copy: memory, and the device that it belongs to.
struct Source {
  LogicalDevice& device;
  const void* data;
};
struct Destination {
  LogicalDevice& device;
  void* data;
};

// The copy follows all earlier work of both compute streams and comes before all later work of
// both. The calling thread waits only where the CPU reads or writes: from the CPU until the bytes
// have been taken, to the CPU until they have arrived. Between GPUs without peer access it goes
// through the host. REQUIRES: at least one device is a CUDA device.
void copy_between(Destination to, Source from, std::size_t num_bytes);

}  // namespace lockstep::runtime
