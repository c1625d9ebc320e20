// What the run file's rows say, and the check behind `compare`, on rows made by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/expect_error.h"
#include "tools/report/weights_check.h"
#include "tools/report/weights_digest.h"

namespace lockstep::tools {
namespace {

nn::StateDict weights_of(const std::vector<double>& values) {
  return {{"0.weight", Tensor::from(values, {values.size()})}};
}

RunRow row_of(Mode mode, std::size_t num_devices, double difference, double tolerance) {
  RunRow row;
  row.placement.mode = mode;
  row.placement.devices.resize(num_devices);
  row.max_abs_weight_diff = difference;
  row.weight_tolerance = tolerance;
  return row;
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(MaxAbsDifference, IsTheLargestOfAllWeights) {
  EXPECT_EQ(max_abs_difference(weights_of({1, 2, 3}), weights_of({1, 2.5, 2.75})), 0.5);
  EXPECT_EQ(max_abs_difference(weights_of({1, 2}), weights_of({1, 2})), 0);
}

TEST(MaxAbsDifference, IsNanWhereAnyWeightIs) {
  EXPECT_TRUE(std::isnan(max_abs_difference(weights_of({kNan, 2}), weights_of({1, 9}))));
  EXPECT_TRUE(std::isnan(max_abs_difference(weights_of({1, 2}), weights_of({7, kNan}))));
}

// Through the command line this cannot happen while the engine is right: so it is shown here.
TEST(RequireEqualWeights, NamesTheRowsThatDifferAndExitsWithOne) {
  const std::vector<RunRow> rows = {row_of(Mode::single, 1, 0, 1e-5),
                                    row_of(Mode::data_parallel, 2, 9e-6, 1e-5),
                                    row_of(Mode::ddp, 4, 2e-5, 1e-5)};
  lockstep::testing::expect_error(
      ErrorCode::Numeric,
      "weights differ from the single-device run by more than 1e-05: ddp on 4 devices by 2e-05",
      [&] { require_equal_weights(rows); });
  EXPECT_EQ(exit_code(ErrorCode::Numeric), 1);
}

TEST(RequireEqualWeights, ANanDiffers) {
  lockstep::testing::expect_error(ErrorCode::Numeric, "dp on 2 devices by nan", [] {
    require_equal_weights({row_of(Mode::data_parallel, 2, kNan, 1e-5)});
  });
}

TEST(RequireEqualWeights, BitwiseRowsMayNotDifferAtAll) {
  EXPECT_NO_THROW(require_equal_weights({row_of(Mode::ddp, 8, 0, 0)}));
  EXPECT_THROW(require_equal_weights({row_of(Mode::ddp, 8, 1e-300, 0)}), Error);
}

TEST(WeightTolerance, GrowsWithTheStepsBeyondTwenty) {
  EXPECT_EQ(weight_tolerance(DType::float32, 1, Summation::plain), 1e-5);
  EXPECT_EQ(weight_tolerance(DType::float32, 20, Summation::plain), 1e-5);
  EXPECT_NEAR(weight_tolerance(DType::float32, 80, Summation::plain), 8e-5, 1e-15);
  EXPECT_EQ(weight_tolerance(DType::float64, 20, Summation::plain), 1e-12);
  EXPECT_EQ(weight_tolerance(DType::float32, 1000, Summation::bitwise), 0);
}

TEST(RunRow, SpeedUpComparesMedianEpochs) {
  RunRow single = row_of(Mode::single, 1, 0, 0);
  single.result.epoch_seconds = {9, 2, 1};
  single.result.num_steps = 6;
  RunRow row = row_of(Mode::ddp, 4, 0, 0);
  row.result.epoch_seconds = {1.5, 0.5};
  EXPECT_EQ(single.median_epoch_seconds(), 2);
  EXPECT_EQ(single.step_seconds(), 2);  // without a recording: the mean
  EXPECT_EQ(row.median_epoch_seconds(), 1);
  EXPECT_EQ(scaling(row, single).speedup, 2);
  EXPECT_EQ(scaling(row, single).efficiency, 0.5);
}

TEST(WeightsDigest, DependsOnEveryBitAndNotOnTheOrderOfNames) {
  nn::StateDict weights = weights_of({1, 2});
  weights.emplace_back("0.bias", Tensor::from(std::vector<double>{3}, {1}));
  nn::StateDict reversed = {weights[1], weights[0]};
  EXPECT_EQ(weights_digest(weights), weights_digest(reversed));
  reversed[1].second = Tensor::from(std::vector<double>{1, std::nextafter(2.0, 3.0)}, {2});
  EXPECT_NE(weights_digest(weights), weights_digest(reversed));
}

// printf '\0\0\0\0\0\0\360?' | sha256sum
TEST(WeightsDigest, IsSha256OfTheBytes) {
  EXPECT_EQ(weights_digest(weights_of({1.0})),
            "6c3c396ed6b5c36dcae172271f462051b1266b851e92df3deea8ac65478fd712");
}

}  // namespace
}  // namespace lockstep::tools
