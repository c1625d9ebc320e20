#include "engine/core/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
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
template <typename Half>
float rounded(float value) {
  return static_cast<float>(Half(value));
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Half, ValuesOfTheStandardsHaveTheirBits) {
  EXPECT_EQ(bits_of(Float16(1.0f)), 0x3c00);
  EXPECT_EQ(bits_of(Float16(-2.0f)), 0xc000);
  EXPECT_EQ(bits_of(Float16(65504.0f)), 0x7bff);
  EXPECT_EQ(bits_of(Float16(0x1p-14f)), 0x0400);
  EXPECT_EQ(bits_of(Float16(0x1p-24f)), 0x0001);
  EXPECT_EQ(bits_of(Float16(-0.0f)), 0x8000);
  EXPECT_EQ(bits_of(Bfloat16(1.0f)), 0x3f80);
  EXPECT_EQ(bits_of(Bfloat16(-0.0f)), 0x8000);
  EXPECT_EQ(bits_of(Bfloat16(3.140625f)), 0x4049);
}

template <typename Half>
void expect_all_bits_survive() {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const auto value = static_cast<float>(half_of<Half>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(rounded<Half>(value)));
    } else {
      ASSERT_EQ(bits_of(Half(value)), bits);
    }
  }
}

TEST(Half, EveryValueSurvivesTheWayThroughFloat) {
  expect_all_bits_survive<Float16>();
  expect_all_bits_survive<Bfloat16>();
}

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
  EXPECT_EQ(rounded<Float16>(65519.0f), 65504.0f);
  EXPECT_EQ(rounded<Float16>(65520.0f), kInfinity);
  EXPECT_EQ(rounded<Float16>(-1e30f), -kInfinity);
  EXPECT_EQ(rounded<Bfloat16>(std::numeric_limits<float>::max()), kInfinity);
  EXPECT_EQ(rounded<Bfloat16>(-kInfinity), -kInfinity);
  EXPECT_TRUE(std::isnan(rounded<Float16>(std::nanf(""))));
  EXPECT_TRUE(std::isnan(rounded<Bfloat16>(std::bit_cast<float>(0x7f800001u))));
}

}  // namespace
}  // namespace lockstep
