#include "engine/nn/loss.h"

#include <gtest/gtest.h>

#include "engine/nn/layers.h"
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

struct Rows {
  Tensor x, labels;
};

TEST(Accuracy, IsTheFractionOfRowsClassifiedCorrectly) {
  Sequential model({std::make_shared<Flatten>(), std::make_shared<Dropout>(0.9, 0, 0)});
  const Rows rows{Tensor::from(std::vector<float>{2, 1, 1, 2, 3, 0, 4, 0}, {4, 2}, Device{}),
                  labels({0, 1, 1, 0}, Device{})};
  EXPECT_EQ(accuracy(model, rows), 0.75);
}

TEST(Accuracy, LeavesEveryModuleInItsMode) {
  Sequential model({std::make_shared<Flatten>(), std::make_shared<Dropout>(0.9, 0, 0)});
  model[0].eval();
  accuracy(model, Tensor::zeros({1, 2}), labels({0}));
  EXPECT_TRUE(model.is_training());
  EXPECT_FALSE(model[0].is_training());
  EXPECT_TRUE(model[1].is_training());
}

}  // namespace
}  // namespace lockstep::nn
