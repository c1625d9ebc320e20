// Arguments that do not fit: the error names the operation and both sides.
#include <gtest/gtest.h>

#include "engine/autograd/ops/ops.h"
#include "tests/support/devices.h"
#include "tests/support/expect_error.h"
#include "tests/support/expect_gradients_match.h"

namespace lockstep::testing {
namespace {

const Device kOther = test_device(1);

Variable constant(const Shape& shape, DType dtype = DType::float64, Device device = test_device()) {
  return Variable(Tensor::zeros(shape, dtype, device));
}

TEST(OpErrors, MixedDevicesNameTheOperationAndBoth) {
  const Variable here = constant({2, 2});
  const Variable there = constant({2, 2}, DType::float64, kOther);
  const std::string words = "all tensors must be on one device, found cpu:0 and cpu:1";
  expect_error(ErrorCode::Device, "[add] " + words, [&] { add(here, there); });
  expect_error(ErrorCode::Device, "[subtract] " + words, [&] { subtract(here, there); });
  expect_error(ErrorCode::Device, "[multiply] " + words, [&] { multiply(here, there); });
  expect_error(ErrorCode::Device, "[matmul] " + words, [&] { matmul(here, there); });
  expect_error(ErrorCode::Device, "[linear] " + words, [&] { linear(here, there, {}); });
  expect_error(ErrorCode::Device, "[mse_loss] " + words, [&] { mse_loss(here, there.value()); });
  expect_error(ErrorCode::Device, "[cross_entropy] " + words,
               [&] { cross_entropy(here, Tensor::zeros({2}, DType::int64, kOther)); });
  expect_error(ErrorCode::Device, "[batch_norm] " + words, [&] {
    batch_norm(here, {constant({2}, DType::float64, kOther), {}, {}, {}});
  });
}

TEST(OpErrors, MixedDtypesNameTheOperationAndBoth) {
  const Variable wide = constant({2, 2});
  const Variable narrow = constant({2, 2}, DType::float32);
  const std::string words = "all tensors must have one dtype, found float64 and float32";
  expect_error(ErrorCode::DType, "[add] " + words, [&] { add(wide, narrow); });
  expect_error(ErrorCode::DType, "[subtract] " + words, [&] { subtract(wide, narrow); });
  expect_error(ErrorCode::DType, "[multiply] " + words, [&] { multiply(wide, narrow); });
  expect_error(ErrorCode::DType, "[matmul] " + words, [&] { matmul(wide, narrow); });
  expect_error(ErrorCode::DType, "[linear] " + words, [&] { linear(wide, narrow, {}); });
  expect_error(ErrorCode::DType, "[mse_loss] " + words, [&] { mse_loss(wide, narrow.value()); });
  expect_error(ErrorCode::DType, "[batch_norm] " + words, [&] {
    batch_norm(wide, {constant({2}, DType::float32), {}, {}, {}});
  });
}

TEST(OpErrors, ShapesThatDoNotFitAreShown) {
  const Variable a = constant({2, 3});
  const Variable b = constant({3, 2});
  expect_error(ErrorCode::Shape, "[add] shapes [2, 3] and [3, 2] differ", [&] { add(a, b); });
  expect_error(ErrorCode::Shape, "[multiply] shapes [2, 3] and [3, 2] differ",
               [&] { multiply(a, b); });
  expect_error(ErrorCode::Shape, "[matmul] inner sizes differ: [2, 3] times [2, 3]",
               [&] { matmul(a, a); });
  expect_error(ErrorCode::Shape, "[matmul] inner sizes differ: [2, 3] times [3, 2]^T",
               [&] { matmul(a, b, Transpose::no, Transpose::yes); });
  expect_error(ErrorCode::Shape, "needs two matrices, found shapes [2, 3] and [3]",
               [&] { matmul(a, constant({3})); });
  expect_error(ErrorCode::Shape, "[linear] input [2, 3] does not fit weight [3, 2]",
               [&] { linear(a, b, {}); });
  expect_error(ErrorCode::Shape, "[linear] bias [3] does not fit weight [2, 3]",
               [&] { linear(a, a, constant({3})); });
  expect_error(ErrorCode::Shape,
               "[reshape] a tensor of shape [2, 3] has 6 elements; shape [4] has 4",
               [&] { reshape(a, {4}); });
  expect_error(ErrorCode::Shape, "expected input [batch, features], found [3]",
               [&] { batch_norm(constant({3}), {}); });
  expect_error(ErrorCode::Shape, "input [2, 3] does not fit features [2]", [&] {
    batch_norm(a, {constant({2}), {}, {}, {}});
  });
}

TEST(OpErrors, CrossEntropyChecksItsLabels) {
  const Variable logits = constant({2, 3});
  const auto labels = [](std::vector<std::int64_t> values) {
    return Tensor::from(values, {values.size()});
  };
  expect_error(ErrorCode::Shape, "expected logits [batch, classes] and labels [batch]", [&] {
    cross_entropy(logits, labels({0, 1, 2}));
  });
  expect_error(ErrorCode::DType, "labels must be int64, found float32",
               [&] { cross_entropy(logits, Tensor::zeros({2})); });
  // A GPU finds out when it computes, and says so when its result is read.
  EXPECT_THROW(cross_entropy(logits, labels({0, 3})).value().item(), Error);
  EXPECT_THROW(cross_entropy(logits, labels({0, -1})).value().item(), Error);
}

TEST(OpErrors, BatchNormNeedsTwoRowsOrStatistics) {
  expect_error(ErrorCode::Shape,
               "expected more than 1 value per channel when training, got input size [1, 3]", [] {
                 batch_norm(constant({1, 3}), {});
               });
  BatchNormArguments evaluation;
  evaluation.statistics = kernels::Statistics::running;
  expect_error(ErrorCode::State, "evaluation needs the running mean and variance", [&] {
    batch_norm(constant({2, 3}), evaluation);
  });
}

}  // namespace
}  // namespace lockstep::testing
