// Shared memory whose size is set at the launch. An emulated GPU (tests/emulated_gpu) puts a file
// of this name before it.
#pragma once

namespace lockstep::runtime::cuda {

// In a kernel: the block's dynamic shared memory, LaunchShape::shared_bytes of it, aligned to 16.
template <typename T>
__device__ T* dynamic_shared_memory() {
  extern __shared__ double2 dynamic_shared_memory_start[];
  return reinterpret_cast<T*>(dynamic_shared_memory_start);
}

}  // namespace lockstep::runtime::cuda
