// The functions that launch_kernel (engine/runtime/cuda/launch_kernel.h) calls instead of CUDA.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace emulated_gpu {

// kernel: tells kernels apart. thread_body: calls the kernel once, with the
// launch's arguments, which it holds by value.
// Returns what cudaLaunchKernelExC returns.
cudaError_t launch(const void* kernel, const cudaLaunchConfig_t& config,
                   std::function<void()> thread_body);

// Queues a kernel that is a function of the host: NCCL's, which are loaded from the start.
cudaError_t launch_task(cudaStream_t stream, std::function<void()> task);

}  // namespace emulated_gpu
