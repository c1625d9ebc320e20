// The two 16-bit floating-point types, as values that convert to float and back.
//
// They store values and do not compute: sums are made in float and rounded once. Rounding is to
// nearest, ties to even; a NaN stays a NaN. It is written out bit by bit, so that every host and
// GPU rounds alike.
#pragma once

#include <cstdint>
#include <type_traits>

#include "engine/core/dtype.h"

namespace lockstep {

// std::bit_cast is for hosts only.
LOCKSTEP_HOST_DEVICE inline std::uint32_t bits_of_float(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}
LOCKSTEP_HOST_DEVICE inline float float_of_bits(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

// The upper half of a float: 8 bits of exponent, 7 of fraction.
class Bfloat16 {
 public:
  static constexpr DType kDType = DType::bfloat16;

  Bfloat16() = default;
  LOCKSTEP_HOST_DEVICE explicit Bfloat16(float value) {
    const std::uint32_t bits = bits_of_float(value);
    const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    bits_ = static_cast<std::uint16_t>(value != value ? bits >> 16 | 0x40u : rounded);
  }
  LOCKSTEP_HOST_DEVICE explicit operator float() const {
    return float_of_bits(static_cast<std::uint32_t>(bits_) << 16);
  }

 private:
  std::uint16_t bits_;
};

// IEEE half: 5 bits of exponent, 10 of fraction. 65520 and more round to infinity, less than 2^-25
// to zero.
class Float16 {
 public:
  static constexpr DType kDType = DType::float16;

  Float16() = default;
  LOCKSTEP_HOST_DEVICE explicit Float16(float value) {
    const std::uint32_t bits = bits_of_float(value);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    // From 2^-14 on: the exponent is moved, 13 bits of fraction are rounded off.
    std::uint32_t half = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    // Below: adding 1/2 leaves the multiple of 2^-24, rounded, in the low bits.
    const float shifted = float_of_bits(magnitude) + 0.5f;
    if (magnitude < 0x38800000u) half = bits_of_float(shifted) - 0x3f000000u;
    if (magnitude >= 0x477ff000u) half = 0x7c00u;
    if (magnitude > 0x7f800000u) half = 0x7e00u;
    bits_ = static_cast<std::uint16_t>((bits >> 16 & 0x8000u) | half);
  }
  LOCKSTEP_HOST_DEVICE explicit operator float() const {
    const std::uint32_t sign = (bits_ & 0x8000u) << 16;
    const std::uint32_t magnitude = bits_ & 0x7fffu;
    std::uint32_t bits = (magnitude << 13) + 0x38000000u;
    // Below 2^-14 the bits count multiples of 2^-24.
    if (magnitude < 0x400u) bits = bits_of_float(static_cast<float>(magnitude) * 0x1p-24f);
    if (magnitude >= 0x7c00u) bits = 0x7f800000u | (magnitude & 0x3ffu) << 13;
    return float_of_bits(sign | bits);
  }

 private:
  std::uint16_t bits_;
};

static_assert(sizeof(Bfloat16) == 2 && std::is_trivial_v<Bfloat16>);
static_assert(sizeof(Float16) == 2 && std::is_trivial_v<Float16>);

template <typename T>
inline constexpr bool is_half = std::is_same_v<T, Bfloat16> || std::is_same_v<T, Float16>;

// The type for sums of T.
template <typename T>
using ArithmeticOf = std::conditional_t<is_half<T>, float, T>;
constexpr DType arithmetic_dtype(DType dtype) {
  return dtype == DType::bfloat16 || dtype == DType::float16 ? DType::float32 : dtype;
}

// An element as its arithmetic type.
template <typename T>
LOCKSTEP_HOST_DEVICE ArithmeticOf<T> number(T element) {
  return static_cast<ArithmeticOf<T>>(element);
}

}  // namespace lockstep
