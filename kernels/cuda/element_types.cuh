// Element types on the device: the two 16-bit ones, conversions, functions such as exp, and the
// choice of a kernel by dtype.
//
// The 16-bit types are twins of those in engine/core/half.h, which are only for hosts: the same
// rules, bit by bit.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/activation_formulas.h"
#include "kernels/element_traits.h"

namespace lockstep::kernels::cuda {

// The upper half of a float: 8 bits of exponent, 7 of fraction.
struct Bfloat16 {
  std::uint16_t bits;
};
// IEEE half: 5 bits of exponent, 10 of fraction.
struct Float16 {
  std::uint16_t bits;
};

__host__ __device__ inline std::uint32_t bits_of_float(float value) {
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
__host__ __device__ inline float float_of_bits(std::uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

// Rounds to nearest, ties to even; a NaN stays NaN.
__host__ __device__ inline Bfloat16 to_bfloat16(float value) {
  const std::uint32_t bits = bits_of_float(value);
  if (value != value) return {static_cast<std::uint16_t>(bits >> 16 | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}
__host__ __device__ inline float to_float(Bfloat16 value) {
  return float_of_bits(std::uint32_t{value.bits} << 16);
}

// Rounds to nearest, ties to even; infinity beyond 65504, zero below 2^-25.
__host__ __device__ inline Float16 to_float16(float value) {
  const std::uint32_t bits = bits_of_float(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;  // NaN
  } else if (magnitude >= 0x477ff000u) {
    half = 0x7c00u;  // 65520 and more round to infinity
  } else if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 1/2 leaves the multiple of 2^-24, rounded, in the low bits.
    half = bits_of_float(float_of_bits(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    half = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  }
  return {static_cast<std::uint16_t>(sign | half)};
}
__host__ __device__ inline float to_float(Float16 value) {
  const std::uint32_t sign = (value.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = value.bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return float_of_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // Below 2^-14 the bits count multiples of 2^-24.
  if (magnitude < 0x400u) {
    return float_of_bits(sign | bits_of_float(static_cast<float>(magnitude) * 0x1p-24f));
  }
  return float_of_bits(sign | ((magnitude << 13) + 0x38000000u));
}

template <typename T>
inline constexpr bool kIsHalf = std::is_same_v<T, Bfloat16> || std::is_same_v<T, Float16>;

// Converts an element like static_cast, through float if a half is involved.
template <typename To, typename From>
__host__ __device__ To element_cast(From value) {
  if constexpr (kIsHalf<From>) {
    return element_cast<To>(to_float(value));
  } else if constexpr (std::is_same_v<To, Bfloat16>) {
    return to_bfloat16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, Float16>) {
    return to_float16(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

// Calls function.operator()<float>() or <double>(); throws Error{DType} for another dtype.
template <typename Function>
void for_floating(DType dtype, const char* operation, Function&& function) {
  for_floating_of<DeviceType::cuda>(dtype, operation, function);
}
inline void require_floating(const char* operation, DType dtype) {
  require_floating_of<DeviceType::cuda>(operation, dtype);
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
