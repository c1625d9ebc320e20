// Stands before engine/runtime/cuda/system_flag.h in a build with emulated GPUs.
#pragma once

#include <atomic>
#include <chrono>

namespace lockstep::runtime::cuda {

inline unsigned long long load_acquire_system(const unsigned long long* word) {
  return std::atomic_ref<unsigned long long>(*const_cast<unsigned long long*>(word))
      .load(std::memory_order_acquire);
}

inline void store_release_system(unsigned long long* word, unsigned long long value) {
  std::atomic_ref<unsigned long long>(*word).store(value, std::memory_order_release);
}

inline unsigned long long nanoseconds() {
  return static_cast<unsigned long long>(std::chrono::steady_clock::now().time_since_epoch() /
                                         std::chrono::nanoseconds(1));
}

}  // namespace lockstep::runtime::cuda
