// Tensors: how they are made, what they are, views, copies, and the checks that operations share.
#include "engine/tensor/tensor.h"

#include <gtest/gtest.h>

#include "tests/support/devices.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"

namespace lockstep::testing {
namespace {

const Device kOther = test_device(1);

// 0, 1, 2, ... as [rows, cols].
Tensor counting(std::size_t rows, std::size_t cols) {
  std::vector<float> values(rows * cols);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return Tensor::from(values, {rows, cols});
}

TEST(Tensor, KnowsItsShapeTypeDeviceAndSize) {
  const Tensor tensor = Tensor::zeros({30, 5}, DType::float64, kOther);
  EXPECT_EQ(tensor.shape(), (Shape{30, 5}));
  EXPECT_EQ(tensor.num_elements(), 150u);
  EXPECT_EQ(tensor.num_bytes(), 1200u);
  EXPECT_EQ(tensor.device(), kOther);
  EXPECT_EQ(describe(tensor), on_test_device("Tensor[30, 5] float64 on cpu:1"));
}

TEST(Tensor, AScalarHasNoDimensionsAndOneElement) {
  const Tensor scalar = Tensor::full({}, 3.0);
  EXPECT_EQ(scalar.num_dims(), 0u);
  EXPECT_EQ(scalar.item(), 3.0);
  EXPECT_EQ(scalar.matrix().rows, 1u);
  EXPECT_EQ(scalar.matrix().cols, 1u);
}

TEST(Tensor, OfNoElementsIsValid) {
  const Tensor none = Tensor::zeros({0, 5});
  EXPECT_EQ(none.num_elements(), 0u);
  EXPECT_TRUE(none.to_vector<float>().empty());
  EXPECT_TRUE(none.clone().to(kOther).defined());
}

TEST(Tensor, FromValuesNeedsAsManyAsTheShapeHas) {
  expect_error(ErrorCode::Shape, "[tensor] shape [2, 3] needs 6 values, found 5", [] {
    Tensor::from(std::vector<float>(5), {2, 3});
  });
}

TEST(Tensor, RandomValuesAreTheSameForEveryDeviceAndRoundedForEveryType) {
  Rng first(5);
  Rng second(5);
  const Tensor wide = Tensor::uniform({100}, -2, 3, first, DType::float64);
  const Tensor narrow = Tensor::uniform({100}, -2, 3, second, DType::float32, kOther);
  const std::vector<double> values = wide.to_vector<double>();
  const std::vector<float> rounded = narrow.to_vector<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_GE(values[i], -2);
    EXPECT_LT(values[i], 3);
    EXPECT_EQ(static_cast<float>(values[i]), rounded[i]);
  }
}

TEST(Tensor, ThatNoMachineCanHoldIsAnErrorThatNamesShapeAndType) {
  constexpr std::size_t kHuge = std::size_t{1} << 61;
  expect_error(ErrorCode::Shape, "[shape] [2305843009213693952] float64 has more than",
               [] { Tensor::empty({kHuge}, DType::float64); });
  expect_error(ErrorCode::Shape, "[shape] [0, 2305843009213693952] float64 has more than", [] {
    Tensor::zeros({0, kHuge}, DType::float64);
  });
  expect_error(ErrorCode::Shape, "[shape] [4294967296, 4294967296] has more than", [] {
    Tensor::empty({std::size_t{1} << 32, std::size_t{1} << 32});
  });
  // Bytes that can be counted, but not had.
  expect_error(ErrorCode::Device, "[allocate] out of memory on ",
               [] { Tensor::empty({kHuge}, DType::uint8, Device{}); });
  Rng rng(0);
  expect_error(ErrorCode::Device, "[allocate] out of memory on ",
               [&] { Tensor::uniform({kHuge / 8}, 0, 1, rng); });
}

TEST(TensorView, RowsShareMemory) {
  const Tensor all = counting(4, 3);
  const Tensor middle = all.rows(1, 3);
  EXPECT_EQ(middle.shape(), (Shape{2, 3}));
  EXPECT_EQ(middle.to_vector<std::int32_t>(), (std::vector<std::int32_t>{3, 4, 5, 6, 7, 8}));
  middle.fill(-1);
  EXPECT_EQ(all.to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{0, 1, 2, -1, -1, -1, -1, -1, -1, 9, 10, 11}));
  EXPECT_EQ(all.storage(), middle.storage());
  EXPECT_FALSE(all.shares_memory_with(middle));
  EXPECT_TRUE(all.rows(1, 3).shares_memory_with(middle));
}

TEST(TensorView, ReshapeSharesMemory) {
  const Tensor all = counting(4, 3);
  const Tensor other = all.reshape({2, 6});
  EXPECT_TRUE(all.shares_memory_with(other));
  EXPECT_EQ(other.rows(1, 2).to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{6, 7, 8, 9, 10, 11}));
}

TEST(TensorView, VersionedSliceSharesMemoryButNotTheVersion) {
  Tensor whole = counting(4, 3);
  const Tensor first = whole.versioned_slice(0, {3}), second = whole.versioned_slice(3, {3});
  first.fill(7);
  EXPECT_EQ(whole.rows(0, 1).to_vector<std::int32_t>(), (std::vector<std::int32_t>{7, 7, 7}));
  EXPECT_NE(first.version(), second.version());
  whole = Tensor();
  EXPECT_EQ(second.to_vector<std::int32_t>(), (std::vector<std::int32_t>{3, 4, 5}));
}

TEST(TensorView, SliceCountsInElements) {
  const Tensor slice = counting(4, 3).slice(5, {2, 2});
  EXPECT_EQ(slice.to_vector<std::int32_t>(), (std::vector<std::int32_t>{5, 6, 7, 8}));
}

TEST(TensorView, OutsideTheTensorIsAnError) {
  const Tensor all = counting(4, 3);
  expect_error(ErrorCode::Shape, "[rows] rows 2 to 5 are not inside a tensor of shape [4, 3]",
               [&] { all.rows(2, 5); });
  expect_error(ErrorCode::Shape, "rows 3 to 2", [&] { all.rows(3, 2); });
  expect_error(ErrorCode::Shape, "rows 0 to 1 are not inside a tensor of shape []",
               [] { Tensor::zeros({}).rows(0, 1); });
  expect_error(ErrorCode::Shape, "[reshape] a tensor of shape [4, 3] has 12 elements",
               [&] { all.reshape({5}); });
  expect_error(ErrorCode::Shape, "[slice] 4 elements from 9 are not inside a tensor of 12", [&] {
    all.slice(9, {2, 2});
  });
  expect_error(ErrorCode::Shape, "[slice]", [&] { all.slice(static_cast<std::size_t>(-1), {1}); });
  expect_error(ErrorCode::Shape, "[shape]", [&] { all.slice(1, {static_cast<std::size_t>(-1)}); });
}

TEST(Tensor, ThatIsUndefinedSaysSoInsteadOfCrashing) {
  const Tensor undefined;
  EXPECT_EQ(describe(undefined), "undefined Tensor");
  expect_error(ErrorCode::State, "is undefined", [&] { undefined.clone(); });
  expect_error(ErrorCode::State, "is undefined", [&] { undefined.fill(1); });
  expect_error(ErrorCode::State, "is undefined", [&] { undefined.to_vector<float>(); });
  expect_error(ErrorCode::State, "is undefined", [&] { undefined.slice(0, {0}); });
  expect_error(ErrorCode::State, "is undefined", [&] { undefined.reshape({0}); });
  expect_error(ErrorCode::State, "is undefined", [&] { undefined.to(DType::float32); });
}

TEST(Tensor, AddsAndScalesInPlace) {
  const Tensor sum = Tensor::full({3}, 1);
  const Tensor other = Tensor::from(std::vector<float>{1, 2, 3}, {3});
  const std::uint64_t version = sum.version();
  sum += other;
  sum.add_(other, -0.5).scale_(2);
  EXPECT_EQ(sum.to_vector<double>(), (std::vector<double>{3, 4, 5}));
  EXPECT_EQ(sum.version(), version + 3);
  EXPECT_EQ(sum[2], 5);
}

TEST(Tensor, RefusesToAddWhatIsNotLikeIt) {
  const Tensor sum = Tensor::zeros({3});
  expect_error(ErrorCode::Shape, "[3] and [2]", [&] { sum += Tensor::zeros({2}); });
  expect_error(ErrorCode::DType, "float64", [&] { sum += Tensor::zeros({3}, DType::float64); });
  expect_error(ErrorCode::Device, "one device",
               [&] { sum += Tensor::zeros({3}, DType::float32, kOther); });
  expect_error(ErrorCode::State, "undefined", [&] { sum += Tensor(); });
  expect_error(ErrorCode::Shape, "[3]", [&] { sum[3]; });
  expect_error(ErrorCode::Shape, "[2, 2]", [&] { Tensor::zeros({2, 2})[0]; });
}

TEST(Tensor, LikeAnotherHasItsShapeTypeAndDevice) {
  const Tensor other = Tensor::full({2, 3}, 1, DType::float64, kOther);
  EXPECT_EQ(describe(Tensor::empty_like(other)), describe(other));
  EXPECT_EQ(Tensor::zeros_like(other).to_vector<double>(), std::vector<double>(6, 0.0));
}

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

// --- copies, values read, and checks

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
