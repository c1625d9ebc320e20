// What launch_kernel (engine/runtime/cuda/launch_kernel.h) calls in place of CUDA.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace emulated_gpu {

// kernel: tells kernels apart (cudaFuncSetAttribute). thread_body: calls the kernel once, with the
// launch's arguments, which it holds by value.
// Returns what cudaLaunchKernelExC returns.
cudaError_t launch(const void* kernel, const cudaLaunchConfig_t& config,
                   std::function<void()> thread_body);

}  // namespace emulated_gpu
