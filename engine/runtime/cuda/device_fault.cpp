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

void report_from_host(DeviceFault& fault, const Error& error) {
  std::int32_t none = 0;
  std::atomic_ref<std::int32_t> kind(fault.kind);
  if (!kind.compare_exchange_strong(none, static_cast<std::int32_t>(FaultKind::host_error))) return;
  fault.error = new Error(error);  // one for each group that breaks
  std::atomic_ref<std::int32_t>(fault.is_written).store(1, std::memory_order_release);
}

void throw_if_written(DeviceFault& fault) {
  std::atomic_ref<std::int32_t> is_written(fault.is_written);
  if (is_written.load(std::memory_order_relaxed) == 0) [[likely]] {
    return;
  }
  // If several threads wait, one of them throws it.
  if (is_written.exchange(0, std::memory_order_acquire) == 0) return;
  const std::int64_t value = fault.value;
  const std::int64_t limit = fault.limit;
  const Error* const error = fault.error;
  const auto kind = static_cast<FaultKind>(
      std::atomic_ref<std::int32_t>(fault.kind).exchange(0, std::memory_order_acq_rel));
  if (kind == FaultKind::host_error) throw Error(*error);
  if (kind == FaultKind::label) {
    fail(ErrorCode::Shape, "cross_entropy", "label {} is outside 0 to {}", value, limit - 1);
  }
  if (kind == FaultKind::token) {
    fail(ErrorCode::Shape, "embedding", "token {} is outside the vocabulary of {}", value, limit);
  }
  fail(ErrorCode::Shape, "gather_rows", "row {} does not exist: the source has {} rows", value,
       limit);
}

}  // namespace lockstep::runtime::cuda
