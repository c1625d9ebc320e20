// CUDA's math that math.h does not have. The fast functions (__expf, ...) are exact ones here: what
// is tested with them needs a tolerance that holds on a GPU too.
#pragma once

#include <math.h>

#include <cmath>

namespace emulated_gpu::device {

// Keeps the compiler from fusing what comes before with what comes after.
template <typename T>
inline T rounded(T value) {
  asm("" : "+m"(value));
  return value;
}

}  // namespace emulated_gpu::device

inline float __expf(float x) {
  return std::exp(x);
}
inline float __exp10f(float x) {
  return std::pow(10.0f, x);
}
inline float __logf(float x) {
  return std::log(x);
}
inline float __log2f(float x) {
  return std::log2(x);
}
inline float __log10f(float x) {
  return std::log10(x);
}
inline float __powf(float x, float y) {
  return std::pow(x, y);
}
inline float __sinf(float x) {
  return std::sin(x);
}
inline float __cosf(float x) {
  return std::cos(x);
}
inline float __tanf(float x) {
  return std::tan(x);
}
inline float __fdividef(float x, float y) {
  return x / y;
}
inline float __saturatef(float x) {
  return x >= 1.0f ? 1.0f : (x > 0.0f ? x : 0.0f);
}
inline void __sincosf(float x, float* sine, float* cosine) {
  *sine = std::sin(x);
  *cosine = std::cos(x);
}

inline float rsqrtf(float x) {
  return 1.0f / std::sqrt(x);
}
inline double rsqrt(double x) {
  return 1.0 / std::sqrt(x);
}
inline float rsqrt(float x) {
  return rsqrtf(x);
}
inline float sinpif(float x) {
  return static_cast<float>(std::sin(x * 3.14159265358979323846));
}
inline float cospif(float x) {
  return static_cast<float>(std::cos(x * 3.14159265358979323846));
}
inline double sinpi(double x) {
  return std::sin(x * 3.14159265358979323846);
}
inline double cospi(double x) {
  return std::cos(x * 3.14159265358979323846);
}
inline float normcdff(float x) {
  return 0.5f * std::erfc(-x * 0.70710678118654752440f);
}
inline double normcdf(double x) {
  return 0.5 * std::erfc(-x * 0.70710678118654752440);
}

// One rounding each, never fused with a neighbour.
inline float __fadd_rn(float x, float y) {
  return emulated_gpu::device::rounded(x + y);
}
inline float __fsub_rn(float x, float y) {
  return emulated_gpu::device::rounded(x - y);
}
inline float __fmul_rn(float x, float y) {
  return emulated_gpu::device::rounded(x * y);
}
inline float __fdiv_rn(float x, float y) {
  return x / y;
}
inline float __frcp_rn(float x) {
  return 1.0f / x;
}
inline float __fsqrt_rn(float x) {
  return std::sqrt(x);
}
inline float __frsqrt_rn(float x) {
  return static_cast<float>(1.0 / std::sqrt(double{x}));
}
inline float __fmaf_rn(float x, float y, float z) {
  return std::fma(x, y, z);
}
inline double __dadd_rn(double x, double y) {
  return emulated_gpu::device::rounded(x + y);
}
inline double __dsub_rn(double x, double y) {
  return emulated_gpu::device::rounded(x - y);
}
inline double __dmul_rn(double x, double y) {
  return emulated_gpu::device::rounded(x * y);
}
inline double __ddiv_rn(double x, double y) {
  return x / y;
}
inline double __drcp_rn(double x) {
  return 1.0 / x;
}
inline double __dsqrt_rn(double x) {
  return std::sqrt(x);
}
inline double __fma_rn(double x, double y, double z) {
  return std::fma(x, y, z);
}

inline float __int2float_rn(int x) {
  return static_cast<float>(x);
}
inline float __uint2float_rn(unsigned x) {
  return static_cast<float>(x);
}
inline float __ll2float_rn(long long x) {
  return static_cast<float>(x);
}
inline float __double2float_rn(double x) {
  return static_cast<float>(x);
}
inline int __float2int_rn(float x) {
  return static_cast<int>(std::nearbyint(x));
}
inline int __float2int_rz(float x) {
  return static_cast<int>(x);
}
