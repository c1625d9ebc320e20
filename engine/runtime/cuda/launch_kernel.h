// The only place that hands a kernel to CUDA. An emulated GPU (tests/emulated_gpu) puts a file of
// this name before it.
#pragma once

#include <cuda_runtime_api.h>

namespace lockstep::runtime::cuda {

// Enqueues kernel(arguments...) with a grid, block, stream and attributes.
template <typename... Parameters>
cudaError_t launch_kernel(void (*kernel)(Parameters...), const cudaLaunchConfig_t& config,
                          Parameters... arguments) {
  void* pointers[] = {static_cast<void*>(&arguments)..., nullptr};
  return cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), pointers);
}

}  // namespace lockstep::runtime::cuda
