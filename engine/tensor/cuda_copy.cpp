// Copies to and from CUDA devices, and the pinned host memory that makes them fast.
#include "engine/core/error.h"
#include "engine/runtime/cuda_device.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/stream.h"
#include "engine/tensor/tensor.h"

namespace lockstep {

Tensor Tensor::empty_pinned(const Shape& shape, DType dtype) {
  return empty_in(runtime::pinned_memory_pool(), runtime::logical_device(Device{}), shape, dtype);
}

// CUDA would accept a copy from pageable memory into a graph, but every launch then reads memory
// that may be gone.
void Tensor::copy_by_cuda(const Tensor& source) const {
  runtime::LogicalDevice& to = logical_device();
  runtime::LogicalDevice& from = source.logical_device();
  const bool is_from_host = from.gpu() == runtime::kNoGpu;
  require(!is_from_host || num_bytes() == 0 || !runtime::is_capturing_step() ||
              runtime::is_pinned(to.gpu(), source.raw()),
          ErrorCode::State, "copy",
          "cannot copy {} from pageable host memory while a step is captured; use pinned memory, "
          "or copy before the step",
          lockstep::describe(source));
  runtime::copy_between({to, raw()}, {from, source.raw()}, num_bytes());
}

}  // namespace lockstep
