#include "engine/data/labelled_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/devices.h"
#include "tests/support/expect_error.h"

namespace lockstep::data {
namespace {

using lockstep::testing::expect_error;
using ::testing::ElementsAre;

// Three rows of two features.
LabelledTensors three_rows() {
  LabelledRows rows;
  rows.features = {0, 1, 2, 3, 4, 5};
  rows.labels = {7, 8, 9};
  rows.num_features = 2;
  rows.scale = 0.5f;
  return to_tensors(rows);
}

TEST(LabelledTensors, HoldTheScaledBytesAndTheLabels) {
  const LabelledTensors rows = three_rows();
  EXPECT_EQ(rows.num_rows(), 3u);
  EXPECT_EQ(rows.x.shape(), (Shape{3, 2}));
  EXPECT_EQ(rows.x.dtype(), DType::float32);
  EXPECT_EQ(rows.labels.dtype(), DType::int64);
  EXPECT_THAT(rows.x.to_vector<float>(), ElementsAre(0, 0.5, 1, 1.5, 2, 2.5));
  EXPECT_THAT(rows.labels.to_vector<std::int64_t>(), ElementsAre(7, 8, 9));
}

TEST(LabelledTensors, TakeRowsInTheirOrderToADevice) {
  const Device device = testing::test_device(1);
  const auto [x, labels] = three_rows().take({2, 0, 2}, device);
  EXPECT_EQ(x.device(), device);
  EXPECT_EQ(labels.device(), device);
  EXPECT_EQ(x.shape(), (Shape{3, 2}));
  EXPECT_THAT(x.to_vector<float>(), ElementsAre(2, 2.5, 0, 0.5, 2, 2.5));
  EXPECT_THAT(labels.to_vector<std::int64_t>(), ElementsAre(9, 7, 9));
}

TEST(LabelledTensors, SayWhichRowTheyDoNotHave) {
  expect_error(ErrorCode::Usage, "there is no row 3, only 3 rows", [] {
    three_rows().take({0, 3}, Device{});
  });
}

}  // namespace
}  // namespace lockstep::data
