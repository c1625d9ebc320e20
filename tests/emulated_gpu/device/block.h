// Barriers of a block, and what a thread can do alone: fences.
//
// The last parameters of every intrinsic are the caller's source line, for messages.
#pragma once

#include <atomic>

#include "tests/emulated_gpu/device/executor_calls.h"

inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  emulated_gpu::device::wait_for_block({file, line});
}

inline void __threadfence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}
inline void __threadfence_system() {
  __threadfence();
}
