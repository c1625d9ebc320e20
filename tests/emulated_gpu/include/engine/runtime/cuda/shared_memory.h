// Stands before engine/runtime/cuda/shared_memory.h in a build with emulated GPUs.
#pragma once

#include "tests/emulated_gpu/device/executor_calls.h"

namespace lockstep::runtime::cuda {

// In a kernel: the block's dynamic shared memory, LaunchShape::shared_bytes of it, aligned to 16.
template <typename T>
T* dynamic_shared_memory() {
  return static_cast<T*>(emulated_gpu::device::dynamic_shared_memory_start());
}

}  // namespace lockstep::runtime::cuda
