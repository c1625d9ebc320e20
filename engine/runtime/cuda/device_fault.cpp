#include "engine/runtime/cuda/device_fault.h"

#include <atomic>
#include <new>

#include "engine/core/error.h"
#include "engine/runtime/cuda/check.h"

namespace lockstep::runtime::cuda {

DeviceFault* make_device_fault() {
  void* memory = nullptr;
  CUDA_CHECK(
      cudaHostAlloc(&memory, sizeof(DeviceFault), cudaHostAllocPortable | cudaHostAllocMapped));
  return new (memory) DeviceFault;
}

void throw_if_written(DeviceFault& fault) {
  std::atomic_ref<std::int32_t> is_written(fault.is_written);
  if (is_written.load(std::memory_order_acquire) == 0) [[likely]] {
    return;
  }
  const DeviceFault found = fault;
  is_written.store(0, std::memory_order_relaxed);
  std::atomic_ref<std::int32_t>(fault.kind).store(0, std::memory_order_release);
  if (static_cast<FaultKind>(found.kind) == FaultKind::label) {
    fail(ErrorCode::Shape, "cross_entropy", "label {} is outside 0 to {}", found.value,
         found.limit - 1);
  }
  fail(ErrorCode::Shape, "gather_rows", "row {} does not exist: the source has {} rows",
       found.value, found.limit);
}

}  // namespace lockstep::runtime::cuda
