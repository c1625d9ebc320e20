#include "kernels/cuda/launch.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "engine/core/error.h"
#include "kernels/cuda/checks.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda_backend.h"

namespace lockstep::kernels::cuda {
namespace {

bool is_blocking() {
  static const bool blocking = [] {
    const char* value = std::getenv("LOCKSTEP_CUDA_BLOCKING");
    return value != nullptr && std::string_view(value) == "1";
  }();
  return blocking;
}

[[noreturn]] void fail_kernel(const char* operation, cudaError_t error) {
  cudaGetLastError();
  fail(ErrorCode::Cuda, operation, "its CUDA kernel failed: {} ({})", cudaGetErrorString(error),
       cudaGetErrorName(error));
}

}  // namespace

LaunchShape covering(std::size_t num_elements, unsigned threads, unsigned max_blocks) {
  const std::size_t blocks = (num_elements + threads - 1) / threads;
  return {dim3(static_cast<unsigned>(std::clamp<std::size_t>(blocks, 1, max_blocks))),
          dim3(threads)};
}

LaunchScope::LaunchScope(runtime::Stream& stream, const char* operation)
    : stream_(runtime::cuda::cuda_stream(stream)), operation_(operation), current_(stream_.gpu()) {}

void LaunchScope::finish(cudaError_t launched) {
  if (launched != cudaSuccess) fail_kernel(operation_, launched);
  if (!is_blocking() || stream_.is_capturing()) return;
  const cudaError_t ran = cudaStreamSynchronize(stream_.handle());
  if (ran != cudaSuccess) fail_kernel(operation_, ran);
}

void fail_sources(std::size_t found, std::size_t most) {
  fail(ErrorCode::Shape, "ordered_sum", "takes at most {} sources, found {}; sum groups of them",
       most, found);
}

}  // namespace lockstep::kernels::cuda

namespace lockstep::kernels {

Backend* cuda_backend() {
  // Never destroyed: tensors in static variables may be used until the very end.
  static cuda::CudaBackend& backend = *new cuda::CudaBackend;
  return &backend;
}

}  // namespace lockstep::kernels
