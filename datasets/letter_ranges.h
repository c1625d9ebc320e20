// The letters and numbers of Unicode (\p{L} and \p{N}): the distances between the points where such
// characters begin and end, starting at 0. Made by make_letter_ranges.py.
#pragma once

#include <array>
#include <cstdint>

namespace lockstep::datasets {

inline constexpr std::size_t kNumLetterRanges = 1388;
inline constexpr std::size_t kNumNumberRanges = 296;
extern const std::array<std::uint32_t, kNumLetterRanges> kLetterRanges;
extern const std::array<std::uint32_t, kNumNumberRanges> kNumberRanges;

}  // namespace lockstep::datasets
