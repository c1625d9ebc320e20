// Shared by the tests of collective plans: the sizes that every plan is checked with, and buffers
// whose sums are known.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <vector>

#include "engine/core/rng.h"
#include "engine/plan/collective_plan.h"
#include "tests/support/expect_error.h"

namespace lockstep::plan {

using lockstep::testing::expect_error;

inline constexpr std::array<int, 10> kWorldSizes{1, 2, 3, 4, 5, 6, 7, 8, 9, 16};
inline constexpr std::array<std::size_t, 6> kLengths{0, 1, 5, 64, 101, 4096};

// Integers small enough that every order of summation is exact.
inline RankBuffers integer_buffers(int world_size, std::size_t num_elements) {
  RankBuffers buffers(static_cast<std::size_t>(world_size));
  Rng rng(7);
  for (std::vector<double>& buffer : buffers) {
    for (std::size_t i = 0; i < num_elements; ++i) {
      buffer.push_back(static_cast<double>(rng.below(2001)) - 1000.0);
    }
  }
  return buffers;
}

// Values of very different sizes, so that the order of summation shows in the last bits.
inline RankBuffers rounding_buffers(int world_size, std::size_t num_elements) {
  RankBuffers buffers(static_cast<std::size_t>(world_size));
  Rng rng(11);
  for (std::vector<double>& buffer : buffers) {
    for (std::size_t i = 0; i < num_elements; ++i) {
      buffer.push_back(rng.normal() * (rng.uniform() < 0.5 ? 1.0 : 1e9));
    }
  }
  return buffers;
}

// The sum of all buffers, added in the order of ranks.
inline std::vector<double> sum_in_rank_order(const RankBuffers& buffers) {
  std::vector<double> sum = buffers.front();
  for (std::size_t rank = 1; rank < buffers.size(); ++rank) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += buffers[rank][i];
  }
  return sum;
}

}  // namespace lockstep::plan
