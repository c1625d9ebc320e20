// Element types on the device: conversions, functions such as exp, and the choice of a kernel by
// dtype.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>

#include "engine/core/half.h"
#include "kernels/activation_formulas.h"
#include "kernels/element_traits.h"

namespace lockstep::kernels::cuda {

// Converts an element like static_cast, through float if a half is involved.
template <typename To, typename From>
__host__ __device__ To element_cast(From value) {
  return static_cast<To>(static_cast<ArithmeticOf<From>>(value));
}

// Calls function.operator()<float>() or <double>(); throws Error{DType} for another dtype.
template <typename Function>
void for_floating(DType dtype, const char* operation, Function&& function) {
  for_floating_of<DeviceType::cuda>(dtype, operation, function);
}
inline void require_floating(const char* operation, DType dtype) {
  require_floating_of<DeviceType::cuda>(operation, dtype);
}

// The same for the type of activations, which may be Bfloat16; what goes with them is ArithmeticOf
// it.
template <typename Function>
void for_activations(DType dtype, const char* operation, Function&& function) {
  if (dtype == DType::bfloat16) return function.template operator()<Bfloat16>();
  for_floating(dtype, operation, function);
}
inline void require_activations(const char* operation, DType dtype) {
  for_activations(dtype, operation, []<typename T>() {});
}

// Calls function.operator()<Unit>() with the unsigned integer that is as wide as an element, for
// kernels that only move elements.
template <typename Function>
void for_width(DType dtype, Function&& function) {
  switch (size_of(dtype)) {
    case 1:
      return function.template operator()<std::uint8_t>();
    case 2:
      return function.template operator()<std::uint16_t>();
    case 4:
      return function.template operator()<std::uint32_t>();
    default:
      return function.template operator()<std::uint64_t>();
  }
}

// Calls function.operator()<T>() with the type of an element.
template <typename Function>
void for_any(DType dtype, Function&& function) {
  for_any_of<Bfloat16, Float16>(dtype, function);
}

// exp, log, tanh and the normal distribution of one element, with the same name for both types:
// CUDA's own, within 2 ulp (kernels/cpu/math.h has errors of about the same size, but different
// ones).

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
