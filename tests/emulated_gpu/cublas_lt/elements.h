// Elements of the types that matrices have, and their roundings.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <library_types.h>

#include <bit>
#include <cstdint>
#include <cstring>

namespace emulated_gpu::cublas_lt {

// Element `index` of a matrix in memory. T, in which it is computed, holds every value of the type.
template <typename T>
T load(const void* data, std::uint32_t type, std::size_t index) {
  switch (type) {
    case CUDA_R_64F:
      return static_cast<T>(static_cast<const double*>(data)[index]);
    case CUDA_R_32F:
      return static_cast<T>(static_cast<const float*>(data)[index]);
    case CUDA_R_16BF:
      return static_cast<T>(__bfloat162float(static_cast<const __nv_bfloat16*>(data)[index]));
    default:
      return static_cast<T>(__half2float(static_cast<const __half*>(data)[index]));
  }
}

// Rounded to nearest, ties to even.
template <typename T>
void store(void* data, std::uint32_t type, std::size_t index, T value) {
  switch (type) {
    case CUDA_R_64F:
      static_cast<double*>(data)[index] = static_cast<double>(value);
      return;
    case CUDA_R_32F:
      static_cast<float*>(data)[index] = static_cast<float>(value);
      return;
    case CUDA_R_16BF:
      static_cast<__nv_bfloat16*>(data)[index] = __float2bfloat16_rn(static_cast<float>(value));
      return;
    default:
      static_cast<__half*>(data)[index] = __float2half_rn(static_cast<float>(value));
      return;
  }
}

// TF32 keeps 10 of float32's 23 bits after the point, and all of its exponent.
inline float round_to_tf32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7F800000u) == 0x7F800000u) return value;  // infinity, NaN
  const std::uint32_t half_of_last = 0x0FFFu + (bits >> 13 & 1u);
  return std::bit_cast<float>((bits + half_of_last) & ~0x1FFFu);
}

inline float round_to_bf16(float value) {
  return __bfloat162float(__float2bfloat16_rn(value));
}

inline float round_to_fp16(float value) {
  return __half2float(__float2half_rn(value));
}

}  // namespace emulated_gpu::cublas_lt
