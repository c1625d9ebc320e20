// exp, log, tanh and the normal distribution of one element, by the same name for both types:
// CUDA's own, within 2 ulp (the errors of kernels/cpu/math.h are about as small, but others).
#pragma once

#include <cmath>

namespace lockstep::kernels::cuda {

__host__ __device__ inline float exp_of(float x) {
  return expf(x);
}
__host__ __device__ inline double exp_of(double x) {
  return exp(x);
}
__host__ __device__ inline float log_of(float x) {
  return logf(x);
}
__host__ __device__ inline double log_of(double x) {
  return log(x);
}
__host__ __device__ inline float tanh_of(float x) {
  return tanhf(x);
}
__host__ __device__ inline double tanh_of(double x) {
  return tanh(x);
}
// A product that is rounded by itself, whatever is added to it: one kernel can then have the bits
// of two that hand it over through memory.
__device__ inline float rounded_product(float a, float b) {
  return __fmul_rn(a, b);
}
__device__ inline double rounded_product(double a, double b) {
  return __dmul_rn(a, b);
}
// The distribution function of the normal distribution.
__host__ __device__ inline float normal_distribution_of(float x) {
  return 0.5f * erfcf(x * -0.707106781186547524f);
}
__host__ __device__ inline double normal_distribution_of(double x) {
  return 0.5 * erfc(x * -0.707106781186547524400844);
}

}  // namespace lockstep::kernels::cuda
