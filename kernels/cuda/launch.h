// Launches kernels on a stream, and keeps a stream's memory for them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <type_traits>

#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/cuda/launch_kernel.h"
#include "engine/runtime/stream.h"

namespace lockstep::kernels::cuda {

struct LaunchShape {
  dim3 grid;   // blocks
  dim3 block;  // threads of a block
};

// Blocks of `threads` that cover num_elements, at most max_blocks of them; the kernel strides over
// the rest by gridDim.x * blockDim.x. At least one block.
LaunchShape covering(std::size_t num_elements, unsigned threads = 256, unsigned max_blocks = 16384);

// Runs before and after every launch: the stream's GPU is made current, and an error is thrown as
// Error{Cuda} with the operation's name. With LOCKSTEP_CUDA_BLOCKING=1 it waits for the kernel, so
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

// operation: the name that a user knows, "relu". Arguments are copied.
template <typename... Parameters>
void launch(runtime::Stream& stream, const char* operation, const LaunchShape& shape,
            void (*kernel)(Parameters...), std::type_identity_t<Parameters>... arguments) {
  LaunchScope scope(stream, operation);
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.stream = scope.handle();
  scope.finish(runtime::cuda::launch_kernel<Parameters...>(kernel, config, arguments...));
}

// Scratch memory of the reductions, in which the last block of a launch finds the other blocks'
// sums, and of matrix products that divide the inner dimension among blocks.
//
// Each stream has its own, because two streams of a device may work at the same time; launches of
// one stream follow each other and share it. It is taken from the device's pool when a stream first
// needs it, and kept. That cannot happen while the stream is captured into a graph, so a step runs
// once before it is captured.
inline constexpr std::size_t kMaxPartials = 32768;
inline constexpr std::size_t kMaxColumns = 4096;  // whose sums one launch hands to the next
inline constexpr std::size_t kMaxTickets = 512;

struct Workspace {
  double* partials = nullptr;     // [kMaxPartials]: from the blocks of a launch to its last block
  double* column_sums = nullptr;  // [2 * kMaxColumns]: from a launch to the next
  double* carry = nullptr;        // [1]: from a launch to the next
  unsigned* tickets = nullptr;    // [kMaxTickets]: 0 between launches
};

// Throws Error{State} in a capture if the stream has none yet, Error{Device} without memory.
Workspace workspace_of(runtime::Stream& stream);

// cuBLASLt's documentation recommends this size for Hopper; older GPUs ask for less.
inline constexpr std::size_t kProductWorkspaceBytes = std::size_t{32} << 20;
void* product_workspace(runtime::Stream& stream);

// True while a StepGraph runs or captures the step.
bool is_in_step_graph(const runtime::Stream& stream);

// Enqueues parts that do not need each other's results: between work that the stream has and work
// that it gets later. Each part but the first gets a stream of its own, so that a StepGraph may run
// them at the same time. Elsewhere that would cost the host more than small kernels take.
// REQUIRES: only the first part allocates memory of the device or frees it, for the others do not
// follow the stream's work, in whose order memory is used again.
void side_by_side(runtime::Stream& stream,
                  std::initializer_list<std::function<void(runtime::Stream&)>> parts);

}  // namespace lockstep::kernels::cuda
