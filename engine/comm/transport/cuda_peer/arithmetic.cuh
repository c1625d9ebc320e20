// The arithmetic of a reduction over ranks: what values are combined in, and how.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "engine/comm/communicator.h"
#include "kernels/cuda/checks.h"
#include "kernels/cuda/half.cuh"
#include "kernels/cuda/vector.cuh"

namespace lockstep::comm::cuda_peer {

namespace on_gpu = kernels::cuda;

// What ranks are added up in: a half's sum is rounded once, at the end.
template <typename T>
struct ArithmeticType {
  using Type = T;
};
template <>
struct ArithmeticType<on_gpu::Bfloat16> {
  using Type = float;
};
template <>
struct ArithmeticType<on_gpu::Float16> {
  using Type = float;
};
template <typename T>
using Arithmetic = typename ArithmeticType<T>::Type;

template <typename T>
__device__ T from_arithmetic(Arithmetic<T> value) {
  return value;
}
template <>
__device__ inline on_gpu::Bfloat16 from_arithmetic(float value) {
  return on_gpu::to_bfloat16(value);
}
template <>
__device__ inline on_gpu::Float16 from_arithmetic(float value) {
  return on_gpu::to_float16(value);
}

// Products and sums are rounded one after the other, as the CPU does it; a fused multiply-add would
// have other bits.
__device__ inline float multiply(float a, float b) {
  return __fmul_rn(a, b);
}
__device__ inline double multiply(double a, double b) {
  return __dmul_rn(a, b);
}
__device__ inline std::int32_t multiply(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) * static_cast<std::uint32_t>(b));
}
__device__ inline std::int64_t multiply(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}
__device__ inline float add(float a, float b) {
  return __fadd_rn(a, b);
}
__device__ inline double add(double a, double b) {
  return __dadd_rn(a, b);
}
__device__ inline std::int32_t add(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
}
__device__ inline std::int64_t add(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

// kScales: whether the factor means something.
struct Sum {
  static constexpr bool kScales = true;
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return add(a, b);
  }
};
struct Product {
  static constexpr bool kScales = false;
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return multiply(a, b);
  }
};
// min and max keep a NaN.
struct Min {
  static constexpr bool kScales = false;
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return b < a || b != b ? b : a;
  }
};
struct Max {
  static constexpr bool kScales = false;
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return b > a || b != b ? b : a;
  }
};

// total = total op factor * values, element by element; the first values begin the total.
enum class Place { first, later };
template <typename T, std::size_t kElements, typename Op>
__device__ void combine(Arithmetic<T> (&total)[kElements],
                        const on_gpu::Vector<T, kElements>& values, Place place,
                        Arithmetic<T> factor, Op op) {
#pragma unroll
  for (std::size_t k = 0; k < kElements; ++k) {
    auto value = on_gpu::element_cast<Arithmetic<T>>(values.at[k]);
    if constexpr (Op::kScales) value = multiply(factor, value);
    total[k] = place == Place::first ? value : op(total[k], value);
  }
}

template <typename T, std::size_t kElements>
__device__ on_gpu::Vector<T, kElements> rounded(const Arithmetic<T> (&total)[kElements]) {
  on_gpu::Vector<T, kElements> result;
#pragma unroll
  for (std::size_t k = 0; k < kElements; ++k) result.at[k] = from_arithmetic<T>(total[k]);
  return result;
}

// Calls function.operator()<T>(op) with the element type and the functor of a reduction.
template <typename Function>
void for_reduction(const char* operation, DType dtype, ReduceOp op, const Function& function) {
  on_gpu::for_any(dtype, [&]<typename T>() {
    if constexpr (std::is_same_v<T, std::uint8_t>) {
      on_gpu::fail_dtype(operation, dtype);
    } else {
      switch (op) {
        case ReduceOp::sum:
        case ReduceOp::average:
          return function.template operator()<T>(Sum{});
        case ReduceOp::product:
          return function.template operator()<T>(Product{});
        case ReduceOp::min:
          return function.template operator()<T>(Min{});
        case ReduceOp::max:
          return function.template operator()<T>(Max{});
      }
    }
  });
}

}  // namespace lockstep::comm::cuda_peer
