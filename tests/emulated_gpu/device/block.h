// Barriers of a block, and what a thread can do alone: fences, time.
//
// The last parameters of every intrinsic are the caller's source line, for messages.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>

#include "tests/emulated_gpu/device/executor_calls.h"

inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  emulated_gpu::device::wait_for_block(0, {file, line});
}

inline int __syncthreads_count(int predicate, const char* file = __builtin_FILE(),
                               int line = __builtin_LINE()) {
  return emulated_gpu::device::wait_for_block(predicate, {file, line}).num_true;
}

inline int __syncthreads_or(int predicate, const char* file = __builtin_FILE(),
                            int line = __builtin_LINE()) {
  return emulated_gpu::device::wait_for_block(predicate, {file, line}).num_true != 0;
}

inline int __syncthreads_and(int predicate, const char* file = __builtin_FILE(),
                             int line = __builtin_LINE()) {
  const auto result = emulated_gpu::device::wait_for_block(predicate, {file, line});
  return result.num_true == result.num_threads;
}

// The thread sanitizer does not know stand-alone fences, and warns of them where it is on; kernels
// pass flags on with atomics (atomics.h), which it does know.
#if defined(__SANITIZE_THREAD__)
inline void __threadfence() {
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
}
#else
inline void __threadfence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}
#endif
inline void __threadfence_block() {
  __threadfence();
}
inline void __threadfence_system() {
  __threadfence();
}

// Lets another stream run. A thread that spins on a flag which a later thread or block of its own
// grid sets would spin for ever: the threads of a grid run one at a time.
inline void __nanosleep(unsigned) {
  sched_yield();
}

// Nanoseconds of the host's clock.
inline long long clock64() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

template <typename T>
T __ldg(const T* address) {
  return *address;
}
template <typename T>
T __ldcs(const T* address) {
  return *address;
}
template <typename T>
T __ldcg(const T* address) {
  return *address;
}
template <typename T>
void __stcs(T* address, T value) {
  *address = value;
}
template <typename T>
void __stcg(T* address, T value) {
  *address = value;
}
