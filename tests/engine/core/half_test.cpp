#include "engine/core/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace lockstep {
namespace {

template <typename Half>
std::uint16_t bits_of(Half half) {
  return std::bit_cast<std::uint16_t>(half);
}
template <typename Half>
Half half_of(unsigned bits) {
  return std::bit_cast<Half>(static_cast<std::uint16_t>(bits));
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Between two neighbours: the middle goes to the even one, anything else to the nearer one.
template <typename Half>
void expect_nearest_even(unsigned last_finite) {
  for (unsigned bits = 0; bits < last_finite; ++bits) {
    const double low = static_cast<float>(half_of<Half>(bits));
    const double high = static_cast<float>(half_of<Half>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(bits_of(Half(middle)), bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(bits_of(Half(std::nextafter(middle, 0.0f))), bits);
    ASSERT_EQ(bits_of(Half(std::nextafter(middle, kInfinity))), bits + 1);
  }
}

TEST(Half, RoundsToTheNearestAndTiesToEven) {
  expect_nearest_even<Float16>(0x7bff);
  expect_nearest_even<Bfloat16>(0x7f7f);
}

TEST(Half, OverflowsToInfinityAndKeepsNaN) {
  EXPECT_EQ(static_cast<float>(Float16(-1e30f)), -kInfinity);
  EXPECT_EQ(static_cast<float>(Bfloat16(std::numeric_limits<float>::max())), kInfinity);
  EXPECT_TRUE(std::isnan(static_cast<float>(Float16(std::nanf("")))));
  EXPECT_TRUE(std::isnan(static_cast<float>(Bfloat16(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace lockstep
