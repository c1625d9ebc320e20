// Atomic operations. Really atomic, since kernels of several streams run at the same time.
//
// They order memory too, which CUDA's do not: a missing __threadfence is not found here.
#pragma once

#include <atomic>
#include <type_traits>

template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).fetch_add(value);
}

// Returns the old value, which tells whether it was replaced.
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>, "CUDA has no atomicCAS of floating-point numbers");
  std::atomic_ref<T>(*address).compare_exchange_strong(expected, value);
  return expected;
}
