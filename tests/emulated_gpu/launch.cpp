#include "tests/emulated_gpu/launch.h"

#include <utility>

#include "tests/emulated_gpu/executor.h"
#include "tests/emulated_gpu/runtime.h"

namespace emulated_gpu {
namespace {

bool is_possible(const dim3& grid, const dim3& block) {
  const auto is_between = [](unsigned size, unsigned largest) {
    return size >= 1 && size <= largest;
  };
  return is_between(grid.x, 0x7fffffff) && is_between(grid.y, 65535) && is_between(grid.z, 65535) &&
         is_between(block.x, 1024) && is_between(block.y, 1024) && is_between(block.z, 64) &&
         block.x * block.y * block.z <= 1024;
}

}  // namespace

cudaError_t launch(const void* kernel, const cudaLaunchConfig_t& config,
                   std::function<void()> thread_body) {
  return api_on_gpu([&] {
    if (!is_possible(config.gridDim, config.blockDim)) return cudaErrorInvalidConfiguration;
    if (!state().has_kernels) return cudaErrorNoKernelImageForDevice;
    load_kernel(kernel);
    const std::lock_guard lock(state().mutex);
    const auto stream = find_stream(config.stream);
    // "A kernel launch will fail if it is issued to a stream that is not associated to the current
    // device": CUDA C++ Programming Guide, Stream and Event Behavior.
    if (!stream || stream->gpu != current_gpu()) return cudaErrorInvalidResourceHandle;

    const cudaError_t failure = std::exchange(stream->next_kernel_fails, cudaSuccess);
    Gpu& gpu = *state().gpus[static_cast<std::size_t>(stream->gpu)];
    Grid grid{config.gridDim, config.blockDim, std::move(thread_body)};
    return submit(*stream, [failure, &gpu, grid = std::move(grid)] {
      if (failure != cudaSuccess) {
        gpu.fault = failure;
      } else {
        run_grid(grid);
      }
    });
  });
}

cudaError_t launch_task(cudaStream_t handle, std::function<void()> task) {
  return api_on_gpu([&] {
    const std::lock_guard lock(state().mutex);
    const auto stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    return submit(*stream, std::move(task));
  });
}

}  // namespace emulated_gpu
