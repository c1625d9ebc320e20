// Atomic operations. Really atomic, since kernels of several streams run at the same time.
//
// They order memory too, which CUDA's do not: a missing __threadfence is not found here.
#pragma once

#include <atomic>
#include <cstring>
#include <type_traits>

namespace emulated_gpu::device {

// Replaces *address by change(old) and returns old.
template <typename T, typename Change>
T atomic_change(T* address, Change change) {
  std::atomic_ref<T> target(*address);
  T old = target.load();
  while (!target.compare_exchange_weak(old, change(old))) {
  }
  return old;
}

}  // namespace emulated_gpu::device

template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).fetch_add(value);
}

template <typename T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>, "CUDA has no atomicMax of floating-point numbers");
  return emulated_gpu::device::atomic_change(address,
                                             [&](T old) { return old < value ? value : old; });
}

// Returns the old value, which tells whether it was replaced.
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>, "CUDA has no atomicCAS of floating-point numbers");
  std::atomic_ref<T>(*address).compare_exchange_strong(expected, value);
  return expected;
}
