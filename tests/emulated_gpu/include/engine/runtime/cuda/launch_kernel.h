// Stands before engine/runtime/cuda/launch_kernel.h in a build with emulated GPUs.
#pragma once

#include <cuda_runtime_api.h>

#include <tuple>

#include "tests/emulated_gpu/launch.h"

namespace lockstep::runtime::cuda {

// Enqueues kernel(arguments...) with a grid, block, stream and attributes.
template <typename... Parameters>
cudaError_t launch_kernel(void (*kernel)(Parameters...), const cudaLaunchConfig_t& config,
                          Parameters... arguments) {
  return emulated_gpu::launch(
      reinterpret_cast<const void*>(kernel), config,
      [kernel, copies = std::tuple<Parameters...>(arguments...)] { std::apply(kernel, copies); });
}

}  // namespace lockstep::runtime::cuda
