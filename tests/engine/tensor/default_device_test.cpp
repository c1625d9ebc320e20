// The device of tensors that are made without one.
#include "engine/tensor/tensor.h"

#include <gtest/gtest.h>

#include "tests/support/devices.h"
#include "tests/support/expect_error.h"

namespace lockstep::testing {
namespace {

TEST(DefaultDevice, IsWhereTensorsGoThatNameNone) {
  const Device before = default_device();
  EXPECT_EQ(before, test_device());
  set_default_device(test_device(3));
  EXPECT_EQ(Tensor::zeros({2}).device(), test_device(3));
  EXPECT_EQ(Tensor::from(std::vector<float>{1, 2}, {2}).device(), test_device(3));
  EXPECT_EQ(Tensor::zeros({2}, DType::float32, test_device(1)).device(), test_device(1));
  set_default_device(before);
}

TEST(DefaultDevice, StaysAsItIsWhenTheNewOneDoesNotExist) {
  expect_error(ErrorCode::Device, "cpu:64 does not exist",
               [] { set_default_device(test_device(64)); });
  EXPECT_EQ(default_device(), test_device());
}

}  // namespace
}  // namespace lockstep::testing
