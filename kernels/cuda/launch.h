// Launching a kernel on a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <type_traits>

#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/cuda/launch_kernel.h"
#include "engine/runtime/stream.h"

namespace lockstep::kernels::cuda {

struct LaunchShape {
  dim3 grid;                     // blocks
  dim3 block;                    // threads of a block
  std::size_t shared_bytes = 0;  // dynamic shared memory of a block; with the static, 48 KiB
};

// Blocks of `threads` that cover num_elements, at most max_blocks of them: the kernel strides over
// the rest by gridDim.x * blockDim.x. At least one block.
LaunchShape covering(std::size_t num_elements, unsigned threads = 256, unsigned max_blocks = 16384);

// Runs before and after every launch: the stream's GPU is made current; an error is thrown as
// Error{Cuda} with the operation's name. Where LOCKSTEP_CUDA_BLOCKING=1, waits for the kernel, so
// that the error of an asynchronous one names the operation that caused it.
class LaunchScope {
 public:
  LaunchScope(runtime::Stream& stream, const char* operation);
  void finish(cudaError_t launched);
  cudaStream_t handle() const { return stream_.handle(); }

 private:
  runtime::cuda::CudaStream& stream_;
  const char* operation_;
  runtime::cuda::CurrentGpu current_;
};

// operation: what a user knows it by, "relu". Arguments are copied.
template <typename... Parameters>
void launch(runtime::Stream& stream, const char* operation, const LaunchShape& shape,
            void (*kernel)(Parameters...), std::type_identity_t<Parameters>... arguments) {
  LaunchScope scope(stream, operation);
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = scope.handle();
  scope.finish(runtime::cuda::launch_kernel<Parameters...>(kernel, config, arguments...));
}

}  // namespace lockstep::kernels::cuda
