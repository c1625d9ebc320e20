// CUDA's arithmetic that math.h does not have, as far as kernels call it.
#pragma once

#include <math.h>

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

// The number of bits that are set.
inline int __popc(unsigned value) {
  return __builtin_popcount(value);
}
