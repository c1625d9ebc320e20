// CUDA's arithmetic that math.h does not have, as far as kernels call it.
#pragma once

#include <math.h>

#include <cmath>
#include <type_traits>

namespace emulated_gpu::device {

// Keeps the compiler from fusing what comes before with what comes after.
template <typename T>
inline T rounded(T value) {
  asm("" : "+m"(value));
  return value;
}

}  // namespace emulated_gpu::device

// One rounding each, never fused with a neighbour.
inline float __fadd_rn(float x, float y) {
  return emulated_gpu::device::rounded(x + y);
}
inline float __fmul_rn(float x, float y) {
  return emulated_gpu::device::rounded(x * y);
}
inline double __dadd_rn(double x, double y) {
  return emulated_gpu::device::rounded(x + y);
}
inline double __dmul_rn(double x, double y) {
  return emulated_gpu::device::rounded(x * y);
}

// The upper half of the product.
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}

// The place of the lowest bit that is set, from 1 on; 0 for none.
inline int __ffs(int value) {
  return __builtin_ffs(value);
}

// As CUDA's overloads: of floating-point numbers, one that is not a NaN wins.
template <typename A, typename B>
requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) {
    return std::fmin(static_cast<T>(a), static_cast<T>(b));
  } else {
    return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
  }
}

template <typename A, typename B>
requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) {
    return std::fmax(static_cast<T>(a), static_cast<T>(b));
  } else {
    return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
  }
}
