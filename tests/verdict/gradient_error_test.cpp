// How far two gradients may be apart, and what tells rounding from a fault.
#include "tools/verdict/gradient_error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::tools {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(GradientErrors, AreRelativeToWhatWasAddedUp) {
  const ReferenceGradient reference{{{3, 4}}, {10}};  // two pieces of norm 5 that agree
  EXPECT_EQ(gradient_errors({{3, 4}}, reference), (std::vector<double>{0}));
  EXPECT_DOUBLE_EQ(gradient_errors({{3, 4.1}}, reference)[0], (4.1 - 4) / 10);
}

TEST(GradientErrors, OfASmallBiasDoNotHideBehindALargeMatrix) {
  const ReferenceGradient reference{{{1000, 1000}, {1e-3}}, {1500, 1e-3}};
  const std::vector<double> errors = gradient_errors({{1000, 1000}, {2e-3}}, reference);
  EXPECT_EQ(errors[0], 0);
  EXPECT_DOUBLE_EQ(errors[1], 1);
}

// Pieces that cancel: what is left over is rounding, and is not taken for an error.
TEST(GradientErrors, OfRowsThatCancelAreSmall) {
  const ReferenceGradient reference{{{1e-8}}, {2}};
  EXPECT_LT(gradient_errors({{-3e-8}}, reference)[0], 1e-7);
}

TEST(GradientErrors, OfAParameterThatNothingReachesAreZeroOrInfinite) {
  const ReferenceGradient reference{{{0, 0}}, {0}};
  EXPECT_EQ(gradient_errors({{0, 0}}, reference)[0], 0);
  EXPECT_EQ(gradient_errors({{0, 1e-30}}, reference)[0], kInfinity);
}

TEST(GradientErrors, ShowAMissingGradientAndANan) {
  const ReferenceGradient reference{{{1}, {1}}, {2, 2}};
  const std::vector<double> errors = gradient_errors({{}, {kNan}}, reference);
  EXPECT_EQ(errors[0], kInfinity);
  EXPECT_TRUE(std::isnan(errors[1]));
}

TEST(GradientLimit, IsTightOnTheCpuAndStatedForGpus) {
  using kernels::MatmulPrecision;
  EXPECT_EQ(gradient_limit(DType::float32, DeviceType::cpu, MatmulPrecision::highest), 1e-5);
  EXPECT_EQ(gradient_limit(DType::float64, DeviceType::cpu, MatmulPrecision::highest), 1e-12);
  EXPECT_EQ(gradient_limit(DType::float32, DeviceType::cuda, MatmulPrecision::highest), 1e-3);
  EXPECT_EQ(gradient_limit(DType::float32, DeviceType::cuda, MatmulPrecision::medium), 3e-2);
}

}  // namespace
}  // namespace lockstep::tools
