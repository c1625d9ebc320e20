#include "engine/nn/loss.h"

#include <gtest/gtest.h>

#include "tests/support/devices.h"
#include "tests/support/expect_error.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::expect_error;
using lockstep::testing::test_device;

Tensor labels(const std::vector<std::int64_t>& values, Device device = test_device()) {
  return Tensor::from(values, {values.size()}, device);
}

TEST(CountCorrect, ComparesTheLargestLogitWithTheLabel) {
  const Tensor logits =
      Tensor::from(std::vector<float>{0.1f, 0.9f, -3, -1, 2, 1}, {3, 2}, test_device());
  EXPECT_EQ(count_correct(logits, labels({1, 1, 0})), 3u);
  EXPECT_EQ(count_correct(logits, labels({1, 0, 1})), 1u);
  EXPECT_EQ(count_correct(logits, labels({0, 0, 1})), 0u);
}

TEST(CountCorrect, RefusesLabelsOfOtherRowsOrPlaces) {
  const Tensor logits = Tensor::zeros({2, 3}, DType::float32, test_device());
  expect_error(ErrorCode::Shape, "[2]", [&] { count_correct(logits, labels({0, 1, 2})); });
  expect_error(ErrorCode::Device, "cpu:1", [&] {
    count_correct(logits, labels({0, 1}, test_device(1)));
  });
}

}  // namespace
}  // namespace lockstep::nn
