// The number types of tensor cores.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace emulated_gpu {

// Keeps this many of the 23 bits behind the point, rounded to nearest even.
inline float round_to_bits(float value, unsigned bits) {
  if (std::isnan(value)) return value;
  const unsigned dropped = 23 - bits;
  std::uint32_t word = std::bit_cast<std::uint32_t>(value);
  word += (1u << (dropped - 1)) - 1 + (word >> dropped & 1u);
  return std::bit_cast<float>(word >> dropped << dropped);
}

inline float from_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

inline std::uint16_t to_bfloat16(float value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(round_to_bits(value, 7)) >> 16);
}

}  // namespace emulated_gpu
