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
T atomicSub(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).fetch_sub(value);
}

template <typename T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>, "CUDA has no atomicMax of floating-point numbers");
  return emulated_gpu::device::atomic_change(address,
                                             [&](T old) { return old < value ? value : old; });
}

template <typename T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>, "CUDA has no atomicMin of floating-point numbers");
  return emulated_gpu::device::atomic_change(address,
                                             [&](T old) { return value < old ? value : old; });
}

template <typename T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).exchange(value);
}

// Returns the old value, which tells whether it was replaced.
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>, "CUDA has no atomicCAS of floating-point numbers");
  std::atomic_ref<T>(*address).compare_exchange_strong(expected, value);
  return expected;
}

template <typename T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).fetch_or(value);
}

template <typename T>
T atomicAnd(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).fetch_and(value);
}

template <typename T>
T atomicXor(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).fetch_xor(value);
}

// *address = old >= limit ? 0 : old + 1
inline unsigned atomicInc(unsigned* address, unsigned limit) {
  return emulated_gpu::device::atomic_change(
      address, [&](unsigned old) { return old >= limit ? 0u : old + 1; });
}

// Among all GPUs and the host: the same here.
template <typename T>
T atomicAdd_system(T* address, std::type_identity_t<T> value) {
  return atomicAdd(address, value);
}

template <typename T>
T atomicExch_system(T* address, std::type_identity_t<T> value) {
  return atomicExch(address, value);
}

template <typename T>
T atomicCAS_system(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return atomicCAS(address, expected, value);
}
