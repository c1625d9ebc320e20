// exp, log, tanh and the normal distribution of one element, by the same name for both types:
// CUDA's own, within 2 ulp (the errors of kernels/cpu/math.h are about as small, but others).
#pragma once

#include <cmath>
#include <utility>

#include "kernels/activation_formulas.h"

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
// The distribution function of the normal distribution.
__host__ __device__ inline float normal_distribution_of(float x) {
  return 0.5f * erfcf(x * -0.707106781186547524f);
}
__host__ __device__ inline double normal_distribution_of(double x) {
  return 0.5 * erfc(x * -0.707106781186547524400844);
}

// For the activations of kernels/activation_formulas.h.
struct CudaMath {
  template <typename T>
  __host__ __device__ static T exp(T x) {
    return exp_of(x);
  }
  template <typename T>
  __host__ __device__ static T tanh(T x) {
    return tanh_of(x);
  }
  template <typename T>
  __host__ __device__ static T normal_distribution(T x) {
    return normal_distribution_of(x);
  }
};

// Calls function(functor) with the functor of an activation.
template <typename Function>
void for_activation(Activation activation, Function&& function) {
  for_activation_with<CudaMath>(activation, std::forward<Function>(function));
}

}  // namespace lockstep::kernels::cuda
