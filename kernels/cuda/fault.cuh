// How a kernel tells the host that its input is wrong (engine/runtime/cuda/device_fault.h).
#pragma once

#include <cstdint>

#include "engine/runtime/cuda/device_fault.h"

namespace lockstep::kernels::cuda {

using runtime::cuda::DeviceFault;
using runtime::cuda::FaultKind;

// The first fault stays.
__device__ inline void report_fault(DeviceFault* fault, FaultKind kind, std::int64_t value,
                                    std::size_t limit) {
  if (atomicCAS(&fault->kind, 0, static_cast<int>(kind)) != 0) return;
  volatile DeviceFault* const seen_by_host = fault;
  seen_by_host->value = value;
  seen_by_host->limit = static_cast<std::int64_t>(limit);
  __threadfence_system();
  seen_by_host->is_written = 1;
}

// Whether 0 <= value < limit.
__device__ inline bool is_within(std::int64_t value, std::size_t limit) {
  return static_cast<std::size_t>(value) < limit;
}

}  // namespace lockstep::kernels::cuda
