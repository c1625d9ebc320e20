// What the run file's rows say, on rows made by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tools/report/bound.h"
#include "tools/report/run_file.h"
#include "tools/report/train_report.h"

namespace lockstep::tools {
namespace {

nn::StateDict weights_of(const std::vector<double>& values) {
  return {{"0.weight", Tensor::from(values, {values.size()})}};
}

RunRow row_of(Mode mode, std::size_t num_devices) {
  RunRow row;
  row.placement.mode = mode;
  row.placement.devices.resize(num_devices);
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

TEST(RunRow, SpeedUpComparesMedianEpochs) {
  RunRow single = row_of(Mode::single, 1);
  single.result.epoch_seconds = {9, 2, 1};
  single.result.num_steps = 6;
  RunRow row = row_of(Mode::ddp, 4);
  row.result.epoch_seconds = {1.5, 0.5};
  EXPECT_EQ(single.median_epoch_seconds(), 2);
  EXPECT_EQ(single.step_seconds(), 2);  // without a recording: the mean
  EXPECT_EQ(row.median_epoch_seconds(), 1);
  EXPECT_EQ(scaling(row, single, 4).speedup, 2);
  EXPECT_EQ(scaling(row, single, 4).efficiency, 0.5);
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
