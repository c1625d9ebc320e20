#include "on_gpu.h"

namespace lockstep::kernels {
namespace {

template <typename T>
using GpuReduction = TypedGpuTest<T>;
TYPED_TEST_SUITE(GpuReduction, Floating);

TYPED_TEST(GpuReduction, SumEqualsTheCpuAndHasTheSameBitsEveryTimeAndAtAnyAddress) {
  using T = TypeParam;
  for (const std::size_t size : kGpuSizes) {
    const auto x = random_array<T>(size, size);
    auto x2 = in_double(x), expected = Array<double>(1);
    cpu().sum(cpu_stream(), x2.view(), expected.view());
    OnGpu<T> y(1, T(5)), again(1), elsewhere(1), aligned(x), skewed(x, 1);
    gpu().sum(gpu_stream(), aligned.view(), y.view());
    gpu().sum(gpu_stream(), aligned.view(), again.view());
    gpu().sum(gpu_stream(), skewed.view(), elsewhere.view());
    // The sum of n values of [-2, 2) is of the size of sqrt(n).
    expect_close(y.values(), expected.values, kTolerance<T>, 1 + std::sqrt(double(size)));
    EXPECT_EQ(y.values(), again.values());
    EXPECT_EQ(y.values(), elsewhere.values());
  }
}

TYPED_TEST(GpuReduction, NormEqualsTheCpuForAnyNumberOfTensors) {
  using T = TypeParam;
  for (const std::size_t num_tensors : {0u, 1u, 5u, 16u, 17u, 192u, 193u, 400u}) {
    std::vector<Array<T>> arrays;
    std::vector<std::unique_ptr<OnGpu<T>>> on_gpu;
    std::vector<ConstTensorView> cpu_views, gpu_views;
    for (std::size_t n = 0; n < num_tensors; ++n) {
      const std::size_t size = num_tensors == 5 ? kGpuSizes[n + 2] : n * 37 % 301;
      arrays.push_back(random_array<T>(size, n));
      on_gpu.push_back(std::make_unique<OnGpu<T>>(arrays[n], n % 2));
      gpu_views.push_back(on_gpu[n]->view());
    }
    for (auto& array : arrays) cpu_views.push_back(array.view());
    Array<double> expected(1);
    cpu().norm(cpu_stream(), cpu_views, expected.view());
    OnGpu<T> y(1, T(5));
    gpu().norm(gpu_stream(), gpu_views, y.view());
    expect_close(y.values(), expected.values);
  }
}

TYPED_TEST(GpuReduction, NormTakesBothTypesAtOnce) {
  OnGpu<float> a(std::vector<float>{3, 0});
  OnGpu<double> b(std::vector<double>{4});
  OnGpu<TypeParam> y(1);
  gpu().norm(gpu_stream(), std::vector<ConstTensorView>{b.view(), a.view()}, y.view());
  EXPECT_EQ(y.values(), std::vector<TypeParam>{5});
}

TYPED_TEST(GpuReduction, ColumnSumsEqualTheCpusAndThemselvesBitForBit) {
  using T = TypeParam;
  for (const std::size_t rows : {0u, 1u, 3u, 63u, 65u, 1000u, 8192u}) {
    for (const std::size_t cols : {0u, 1u, 3u, 31u, 33u, 130u}) {
      const auto x = random_grid<T>(rows, cols, 3, rows + cols);
      auto x2 = in_double(x);
      Array<double> expected(cols);
      GridOnGpu<T> x1(x);
      OnGpu<T> y(cols), again(cols);
      sum_columns(cpu(), cpu_stream(), x2.view(), expected.view());
      sum_columns(gpu(), gpu_stream(), x1.view(), y.view());
      expect_close(y.values(), expected.values, kTolerance<T>, 1 + std::sqrt(double(rows)));
      sum_columns(gpu(), gpu_stream(), x1.view(), again.view());
      ASSERT_EQ(y.values(), again.values());
    }
  }
}

TYPED_TEST(GpuReduction, ColumnSumsOfWideMatricesNeedNoWorkspacePerColumn) {
  using T = TypeParam;
  const auto x = random_grid<T>(70, 20'011, 0, 3);
  auto x2 = in_double(x);
  Array<double> expected(20'011);
  GridOnGpu<T> x1(x);
  OnGpu<T> y(20'011);
  sum_columns(cpu(), cpu_stream(), x2.view(), expected.view());
  sum_columns(gpu(), gpu_stream(), x1.view(), y.view());
  expect_close(y.values(), expected.values, kTolerance<T>, 10);
}

TYPED_TEST(GpuReduction, ArgmaxTakesTheFirstLargestAndNaNBeforeAll) {
  using T = TypeParam;
  for (const std::size_t cols : {1u, 3u, 31u, 33u, 1000u}) {
    auto x = random_grid<T>(41, cols, 2, cols);
    for (std::size_t j = 0; j < cols; ++j) x(1, j) = T(1);           // all equal
    for (std::size_t j = 0; j < cols; ++j) x(2, j) = T(-kInfinity);  // all -inf
    x(3, cols / 2) = T(kNaN);
    x(3, cols - 1) = T(kInfinity);
    x(4, cols - 1) = x(4, cols / 3) = T(100);
    Array<std::int64_t> expected(41);
    cpu().argmax_rows(cpu_stream(), x.view(), expected.view());
    GridOnGpu<T> x1(x);
    OnGpu<std::int64_t> y(41);
    gpu().argmax_rows(gpu_stream(), x1.view(), y.view());
    ASSERT_EQ(y.values(), expected.values);
  }
  OnGpu<std::int64_t> none(0);
  gpu().argmax_rows(gpu_stream(), matrix_view(static_cast<void*>(nullptr), dtype_of<T>, 0, 7),
                    none.view());
}

}  // namespace
}  // namespace lockstep::kernels
