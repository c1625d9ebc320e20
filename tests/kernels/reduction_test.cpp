#include "reference.h"

namespace lockstep::kernels {
namespace {

template <typename T>
class ReductionKernel : public ::testing::Test {};
TYPED_TEST_SUITE(ReductionKernel, Floating);

TYPED_TEST(ReductionKernel, SumEqualsAPlainLoopAndDoesNotDependOnThreads) {
  using T = TypeParam;
  for (const std::size_t size : kSizes) {
    auto x = random_array<T>(size, 1);
    double expected = 0;
    for (const T value : x.values) expected += double(value);
    std::vector<T> results;
    for_thread_counts([&](Stream& stream) {
      Array<T> y(1, T(5));
      cpu().sum(stream, x.view(), y.view());
      expect_close(y.values, {expected}, kTolerance<T>, 1 + 0.01 * double(size));
      results.push_back(y[0]);
    });
    EXPECT_EQ(results, std::vector<T>(3, results[0]));
  }
}

TYPED_TEST(ReductionKernel, SumDoesNotDependOnAddresses) {
  using T = TypeParam;
  auto x = random_array<T>(5000, 1);
  std::vector<T> results;
  for (std::size_t shift = 0; shift < 9; ++shift) {
    std::vector<T> moved(shift, T(0));
    moved.insert(moved.end(), x.values.begin(), x.values.end());
    Array<T> y(1);
    cpu().sum(stream_with(1), TensorView{moved.data() + shift, dtype_of<T>, x.size()}, y.view());
    results.push_back(y[0]);
  }
  EXPECT_EQ(results, std::vector<T>(9, results[0]));
}

TYPED_TEST(ReductionKernel, ABiasGradientIsTheSumOfEachColumn) {
  using T = TypeParam;
  for (const std::size_t rows : {0u, 1u, 63u, 64u, 65u, 2000u}) {
    for (const std::size_t cols : {1u, 10u, 33u}) {
      auto grad = random_grid<T>(rows, cols, 3, 1);
      std::vector<double> expected(cols, 0.0);
      for (std::size_t i = 0; i < rows; ++i) {
        for (std::size_t j = 0; j < cols; ++j) expected[j] += double(grad(i, j));
      }
      Grid<T> x(rows, 0), weight(cols, 0);
      std::vector<std::vector<T>> results;
      for_thread_counts([&](Stream& stream) {
        Array<T> y(cols, T(2.5));
        cpu().linear_backward(stream, x.view(), weight.view(), grad.view(), {}, {}, y.view());
        expect_close(y.values, expected, kTolerance<T>, 1 + double(rows));
        results.push_back(y.values);
      });
      EXPECT_EQ(results[1], results[0]);
      EXPECT_EQ(results[2], results[0]);
    }
  }
}

TYPED_TEST(ReductionKernel, ArgmaxIsTheFirstLargestAndNaNIsLargest) {
  using T = TypeParam;
  Grid<T> x(4, 3, 2);
  const std::vector<std::vector<T>> rows{{1, 3, 3},
                                         {-1, -5, -3},
                                         {T(kInfinity), T(kNaN), T(kNaN)},
                                         {T(-kInfinity), T(-kInfinity), -1}};
  for (std::size_t i = 0; i < 4; ++i) std::copy(rows[i].begin(), rows[i].end(), &x(i, 0));
  Array<std::int64_t> y(4);
  cpu().argmax_rows(stream_with(1), x.view(), y.view());
  EXPECT_EQ(y.values, (std::vector<std::int64_t>{1, 0, 1, 2}));
}

TYPED_TEST(ReductionKernel, ArgmaxOfManyRowsOnManyThreads) {
  using T = TypeParam;
  auto x = random_grid<T>(9000, 10, 0, 4);
  for_thread_counts([&](Stream& stream) {
    Array<std::int64_t> y(9000);
    cpu().argmax_rows(stream, x.view(), y.view());
    for (std::size_t i = 0; i < 9000; ++i) {
      ASSERT_EQ(y[i], std::max_element(&x(i, 0), &x(i, 0) + 10) - &x(i, 0));
    }
  });
}

TYPED_TEST(ReductionKernel, NormTakesAllTensorsTogether) {
  using T = TypeParam;
  std::vector<Array<T>> tensors;
  std::vector<ConstTensorView> views;
  double squares = 0;
  for (const std::size_t size : kSizes) {
    tensors.push_back(random_array<T>(size, size));
    for (const T value : tensors.back().values) squares += double(value) * double(value);
  }
  for (auto& tensor : tensors) views.push_back(tensor.view());
  for_thread_counts([&](Stream& stream) {
    Array<T> y(1);
    cpu().norm(stream, views, y.view());
    expect_close(y.values, {std::sqrt(squares)}, 10 * kTolerance<T>);
  });
}

TEST(NormOfFloats, DoesNotOverflowWhereTheSquaresWould) {
  Array<float> x(std::vector<float>{3e30f, 4e30f}), y(1);
  cpu().norm(stream_with(1), std::vector<ConstTensorView>{x.view()}, y.view());
  EXPECT_FLOAT_EQ(y[0], 5e30f);
}

}  // namespace
}  // namespace lockstep::kernels
