// Stands before kernels/cuda/tensor_core.cuh in a build with emulated GPUs: the same instructions,
// by the lanes' places that the file there describes. Sums are float32, added from the left.
#pragma once

#include <array>
#include <cmath>
#include <cstring>

#include "engine/core/half.h"
#include "tests/emulated_gpu/device/warp.h"

namespace lockstep::kernels::cuda {

struct Tf32 {};
inline constexpr bool kHasTensorCores = true;

struct Four {
  unsigned at[4];
};

namespace emulated {

using emulated_gpu::device::SourceLine;

// The values that all lanes of the warp brought to an instruction.
template <typename T>
std::array<T, 32> gather(const char* instruction, const T& mine, SourceLine where) {
  using namespace emulated_gpu::device;
  const WarpValues& met = exchange_in_warp(instruction, 0xFFFFFFFFu, &mine, sizeof(T), where);
  if (met.lanes != 0xFFFFFFFFu) fail_thread(where, "uses a tensor core without its whole warp");
  std::array<T, 32> all;
  for (std::size_t lane = 0; lane < 32; ++lane) {
    std::memcpy(&all[lane], &met.values[lane], sizeof(T));
  }
  return all;
}

// The hardware reads no more of a factor than its type has.
inline float tf32_in(unsigned word) {
  return float_of_bits(word & 0xFFFFE000u);
}
inline float low_in(unsigned word) {
  return float_of_bits(word << 16);
}
inline float high_in(unsigned word) {
  return float_of_bits(word & 0xFFFF0000u);
}

// The product of two registers: of one element each in TF32, of two in bfloat16.
inline float product(Tf32, unsigned first, unsigned second) {
  return tf32_in(first) * tf32_in(second);
}
inline float product(Bfloat16, unsigned first, unsigned second) {
  return low_in(first) * low_in(second) + high_in(first) * high_in(second);
}

template <typename Element>
void multiply_add(float* const (&sums)[4], const Four& first, const std::array<unsigned, 2>& second,
                  SourceLine where) {
  const auto firsts = gather("mma.sync (first factor)", first, where);
  const auto seconds = gather("mma.sync (second factor)", second, where);
  const unsigned lane = emulated_gpu::device::lane_index();
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = lane / 4 + i / 2 * 8;
    const unsigned column = lane % 4 * 2 + i % 2;
    for (unsigned place = 0; place < 8; ++place) {
      const unsigned a = firsts[row % 8 * 4 + place % 4].at[row / 8 + place / 4 * 2];
      const unsigned b = seconds[column * 4 + place % 4][place / 4];
      *sums[i] += product(Element{}, a, b);
    }
  }
}

inline std::array<const std::byte*, 32> rows_of_matrices(const void* row, SourceLine where) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) {
    emulated_gpu::device::fail_thread(where,
                                      "gives ldmatrix a row that is not aligned to 16 bytes");
  }
  return gather("ldmatrix.sync", static_cast<const std::byte*>(row), where);
}

}  // namespace emulated

template <typename Element>
void multiply_add(Element, float& s0, float& s1, float& s2, float& s3, const Four& first,
                  unsigned second0, unsigned second1, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  float* const sums[4] = {&s0, &s1, &s2, &s3};
  emulated::multiply_add<Element>(sums, first, {second0, second1}, {file, line});
}

inline float power_of_two(float x) {
  const float power = std::exp2(x);
  return power < 0x1p-126f ? 0 : power;
}
inline float rounded_to_tf32(float value) {
  const std::uint32_t bits = bits_of_float(value);
  const bool is_finite = (bits & 0x7F800000u) != 0x7F800000u;
  return float_of_bits((is_finite ? bits + 0x1000u : bits) & 0xFFFFE000u);
}
inline unsigned pair_of_bfloat16(float low, float high) {
  const auto bits = [](float value) {
    return bits_of_float(static_cast<float>(Bfloat16(value))) >> 16;
  };
  return bits(high) << 16 | bits(low);
}

inline Four load_matrices(const void* row, const char* file = __builtin_FILE(),
                          int line = __builtin_LINE()) {
  const auto rows = emulated::rows_of_matrices(row, {file, line});
  const unsigned lane = emulated_gpu::device::lane_index();
  Four to;
  for (unsigned m = 0; m < 4; ++m) {
    std::memcpy(&to.at[m], rows[8 * m + lane / 4] + lane % 4 * 4, 4);
  }
  return to;
}
inline Four load_transposed(const void* row, const char* file = __builtin_FILE(),
                            int line = __builtin_LINE()) {
  const auto rows = emulated::rows_of_matrices(row, {file, line});
  const unsigned lane = emulated_gpu::device::lane_index();
  Four to;
  for (unsigned m = 0; m < 4; ++m) {
    std::uint16_t low = 0, high = 0;
    std::memcpy(&low, rows[8 * m + lane % 4 * 2] + lane / 4 * 2, 2);
    std::memcpy(&high, rows[8 * m + lane % 4 * 2 + 1] + lane / 4 * 2, 2);
    to.at[m] = unsigned{high} << 16 | low;
  }
  return to;
}

}  // namespace lockstep::kernels::cuda
