// Tensors: copies between devices and types, reading values, and the checks operations share.
#include <gtest/gtest.h>

#include "engine/tensor/tensor.h"
#include "tests/support/devices.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"

namespace lockstep::testing {
namespace {

const Device kOther = test_device(1);

TEST(TensorCopy, CloneHasMemoryOfItsOwn) {
  const Tensor tensor = Tensor::full({3}, 1.0);
  const Tensor copy = tensor.clone();
  tensor.fill(2.0);
  EXPECT_EQ(copy.to_vector<std::int32_t>(), (std::vector<std::int32_t>{1, 1, 1}));
}

TEST(TensorCopy, ToAnotherDeviceCopiesAndToTheSameDoesNot) {
  const Tensor tensor = random_tensor({3, 4}, 1);
  const Tensor there = tensor.to(kOther);
  EXPECT_EQ(there.device(), kOther);
  expect_close(there, tensor, kExact);
  EXPECT_FALSE(there.shares_memory_with(tensor));
  EXPECT_TRUE(tensor.to(test_device()).shares_memory_with(tensor));
}

TEST(TensorCopy, ConvertsBetweenTypes) {
  const Tensor values = Tensor::from(std::vector<double>{-1.5, 0.1, 3.0}, {3});
  EXPECT_EQ(values.to(DType::float32).to_vector<float>(), (std::vector<float>{-1.5f, 0.1f, 3.0f}));
  EXPECT_EQ(values.to(DType::int64).to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{-1, 0, 3}));
  EXPECT_EQ(Tensor::from(std::vector<std::uint8_t>{0, 255}, {2}).to_vector<double>(),
            (std::vector<double>{0, 255}));
  EXPECT_TRUE(values.to(DType::float64).shares_memory_with(values));
}

TEST(TensorCopy, FromAnotherDeviceIntoAView) {
  const Tensor target = Tensor::zeros({3, 2});
  target.rows(1, 2).copy_from(Tensor::full({1, 2}, 5.0, DType::float32, kOther));
  EXPECT_EQ(target.to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 0, 5, 5, 0, 0}));
}

TEST(TensorCopy, NeedsTheSameShapeAndType) {
  const Tensor target = Tensor::zeros({3});
  expect_error(ErrorCode::Shape, "[copy] shapes [3] and [2] differ",
               [&] { target.copy_from(Tensor::zeros({2})); });
  expect_error(ErrorCode::DType, "[copy] all tensors must have one dtype, found float32 and int64",
               [&] { target.copy_from(Tensor::zeros({3}, DType::int64)); });
}

TEST(TensorRead, ItemNeedsExactlyOneElement) {
  EXPECT_EQ(Tensor::full({1, 1}, 4.0).item(), 4.0);
  expect_error(ErrorCode::Shape, "[item] needs exactly 1 element, found shape [2]",
               [] { Tensor::zeros({2}).item(); });
}

TEST(TensorRead, HostElementsNeedTheRightType) {
  const Tensor tensor = Tensor::full({2}, 1.0, DType::float32, Device{});
  tensor.host<float>()[1] = 9.0f;
  EXPECT_EQ(tensor.to_vector<std::int32_t>(), (std::vector<std::int32_t>{1, 9}));
  expect_error(ErrorCode::DType, "[host] the tensor has dtype float32, asked for float64",
               [&] { tensor.host<double>(); });
}

TEST(TensorChecks, NameTheOperationAndTheFirstTwoThatDiffer) {
  const Tensor a = Tensor::zeros({2});
  const Tensor b = Tensor::zeros({2}, DType::float32, kOther);
  const Tensor c = Tensor::zeros({2}, DType::float64);
  const Tensor none;
  require_same_device("op", {&a, &none, &c});
  require_same_dtype("op", {&a, &none, &b});
  expect_error(ErrorCode::Device,
               "[op] all tensors must be on one device, found cpu:0 and cpu:1; move one", [&] {
                 require_same_device("op", {&none, &a, &b});
               });
  expect_error(ErrorCode::DType, "[op] all tensors must have one dtype, found float32 and float64",
               [&] {
                 require_same_dtype("op", {&a, &c});
               });
}

}  // namespace
}  // namespace lockstep::testing
