#include "reference.h"

namespace lockstep::kernels {
namespace {

template <typename T>
class ReductionKernel : public ::testing::Test {};
TYPED_TEST_SUITE(ReductionKernel, Floating);

TYPED_TEST(ReductionKernel, SumHasTheSameBitsAnywhere) {
  using T = TypeParam;
  for (const std::size_t size : kSizes) {
    SCOPED_TRACE(size);
    const auto x = random_values<T>(size, size);
    double expected = 0;
    for (const T value : x) expected += double(value);
    std::vector<T> sums;
    for (std::size_t skew = 0; skew < 9; ++skew) {
      const OnDevice<T> on_device(x, skew);
      for_thread_counts([&](Stream& stream) {
        const OnDevice<T> y(1, T(5));
        tested().sum(stream, {on_device.view(), y.view()});
        sums.push_back(y.value());
      });
    }
    // The sum of n values of [-2, 2) is of the size of sqrt(n).
    expect_close(std::vector<T>{sums[0]}, {expected}, kTolerance<T>, 1 + std::sqrt(double(size)));
    EXPECT_EQ(sums, std::vector<T>(sums.size(), sums[0]));
  }
}

template <typename T>
void expect_column_sums(std::size_t rows, std::size_t cols) {
  SCOPED_TRACE(::testing::Message() << rows << " x " << cols);
  const auto x = random_grid<T>(rows, cols, 3, rows + cols);
  std::vector<double> expected(cols, 0.0);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < cols; ++j) expected[j] += double(x(i, j));
  }
  const GridOnDevice<T> on_device(x);
  std::vector<std::vector<T>> results;
  for (int repetition = 0; repetition < 2; ++repetition) {
    for_thread_counts([&](Stream& stream) {
      const OnDevice<T> y(cols, T(2.5));
      sum_columns(stream, on_device.view(), y.view());
      results.push_back(y.values());
    });
  }
  expect_close(results[0], expected, kTolerance<T>, 1 + 4 * std::sqrt(double(rows)));
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

TYPED_TEST(ReductionKernel, ColumnSumsAreTheSameEveryTime) {
  for (const std::size_t rows : {0u, 1u, 3u, 63u, 64u, 65u, 2000u}) {
    for (const std::size_t cols : {0u, 1u, 3u, 10u, 33u, 130u}) {
      expect_column_sums<TypeParam>(rows, cols);
    }
  }
  expect_column_sums<TypeParam>(70, 20'011);  // more than a workspace holds
}

TYPED_TEST(ReductionKernel, ArgmaxIsTheFirstNaNOrLargest) {
  using T = TypeParam;
  for (const std::size_t rows : {0u, 5u, 9000u}) {
    for (const std::size_t cols : {1u, 3u, 10u, 33u, 1000u}) {
      if (rows * cols > 100'000) continue;
      auto x = random_grid<T>(rows, cols, 2, cols);
      std::vector<std::int64_t> expected;
      for (std::size_t i = 0; i < rows; ++i) {
        T* row = &x(i, 0);
        if (i == 1) std::fill_n(row, cols, T(1));
        if (i == 2) std::fill_n(row, cols, T(-kInfinity));
        if (i == 4) row[cols - 1] = row[cols / 3] = T(100);
        std::size_t largest = std::size_t(std::max_element(row, row + cols) - row);
        if (i == 3) {
          row[cols - 1] = T(kInfinity);
          row[largest = cols / 2] = T(kNaN);
        }
        expected.push_back(std::int64_t(largest));
      }
      const GridOnDevice<T> on_device(x);
      for_thread_counts([&](Stream& stream) {
        const OnDevice<std::int64_t> y(rows);
        tested().argmax_rows(stream, {on_device.view(), y.view()});
        ASSERT_EQ(y.values(), expected) << cols;
      });
    }
  }
}

TYPED_TEST(ReductionKernel, NormTakesAnyNumberOfTensorsTogether) {
  using T = TypeParam;
  // A GPU takes 16 tensors in a launch and 192 in a graph's.
  for (const std::size_t num_tensors : {0u, 1u, 8u, 16u, 17u, 193u, 400u}) {
    std::vector<std::unique_ptr<OnDevice<T>>> tensors;
    std::vector<ConstTensorView> views;
    double squares = 0;
    for (std::size_t n = 0; n < num_tensors; ++n) {
      const auto values = random_values<T>(num_tensors == 8 ? kSizes[n] : n * 37 % 301, n);
      for (const T value : values) squares += double(value) * double(value);
      tensors.push_back(std::make_unique<OnDevice<T>>(values, n % 2));
      views.push_back(tensors.back()->view());
    }
    for_thread_counts([&](Stream& stream) {
      const OnDevice<T> y(1, T(5));
      tested().norm(stream, {views, y.view()});
      expect_close(y.values(), {std::sqrt(squares)}, 10 * kTolerance<T>);
    });
  }
}

TYPED_TEST(ReductionKernel, NormTakesBothTypesAtOnce) {
  const OnDevice<float> a(std::vector<float>{3, 0});
  const OnDevice<double> b(std::vector<double>{4});
  const OnDevice<TypeParam> y(1);
  tested().norm(stream(), {std::vector<ConstTensorView>{b.view(), a.view()}, y.view()});
  EXPECT_EQ(y.values(), std::vector<TypeParam>{5});
}

TEST(NormOfFloats, DoesNotOverflowWhereTheSquaresWould) {
  const OnDevice<float> x(std::vector<float>{3e30f, 4e30f}), y(1);
  tested().norm(stream(), {std::vector<ConstTensorView>{x.view()}, y.view()});
  EXPECT_FLOAT_EQ(y.value(), 5e30f);
}

}  // namespace
}  // namespace lockstep::kernels
