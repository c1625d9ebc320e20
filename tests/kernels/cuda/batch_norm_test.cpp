#include "on_gpu.h"

namespace lockstep::kernels {
namespace {

template <typename T>
using GpuBatchNorm = TypedGpuTest<T>;
TYPED_TEST_SUITE(GpuBatchNorm, Floating);

using Statistics = BatchNormForward::Statistics;
enum class Affine { no, yes };

// One forward and backward pass in T on a backend; results as doubles, in this order: y, mean,
// inverse_std, running_mean, running_var, grad_x, grad_weight, grad_bias.
struct Case {
  std::size_t rows;
  std::size_t cols;
  Statistics statistics;
  Affine affine;
  double mean = 0;  // of the inputs
};

template <typename T>
Grid<T> inputs_of(const Case& c) {
  auto x = random_grid<T>(c.rows, c.cols, 3, 1);
  for (std::size_t i = 0; i < c.rows; ++i) {
    for (std::size_t j = 0; j < c.cols; ++j) x(i, j) += static_cast<T>(c.mean);
  }
  return x;
}

template <typename T>
std::vector<T> positive(std::size_t size) {
  auto values = random_array<T>(size, 9).values;
  for (T& value : values) value = std::fabs(value) + T(0.5);
  return values;
}

void fill_calls(const Case& c, BatchNormForward& forward, BatchNormBackward& backward) {
  forward.statistics = backward.statistics = c.statistics;
  if (c.affine == Affine::no) {
    forward.weight = {};
    forward.bias = {};
    backward.weight = {};
    backward.grad_weight = {};
    backward.grad_bias = {};
  }
}

template <typename T>
std::vector<std::vector<double>> on_cpu(const Case& c) {
  const auto n = c.cols;
  auto x = in_double(inputs_of<T>(c)), grad_y = in_double(random_grid<T>(c.rows, n, 1, 2));
  auto weight = in_double(random_array<T>(n, 3)), bias = in_double(random_array<T>(n, 4));
  auto running_mean = in_double(random_array<T>(n, 5));
  auto running_var = in_double(Array<T>(positive<T>(n)));
  Grid<double> y(c.rows, n), grad_x(c.rows, n);
  Array<double> mean(n), inverse_std(n), grad_weight(n), grad_bias(n);
  BatchNormForward forward{
      x.view(),    weight.view(),      bias.view(),         y.view(),
      mean.view(), inverse_std.view(), running_mean.view(), running_var.view()};
  BatchNormBackward backward{x.view(),      weight.view(), mean.view(),        inverse_std.view(),
                             grad_y.view(), grad_x.view(), grad_weight.view(), grad_bias.view()};
  fill_calls(c, forward, backward);
  cpu().batch_norm_forward(cpu_stream(), forward);
  cpu().batch_norm_backward(cpu_stream(), backward);
  return {y.content(),        mean.values,      inverse_std.values, running_mean.values,
          running_var.values, grad_x.content(), grad_weight.values, grad_bias.values};
}

template <typename T>
std::vector<std::vector<double>> on_gpu(const Case& c) {
  const auto n = c.cols;
  GridOnGpu<T> x(inputs_of<T>(c)), grad_y(random_grid<T>(c.rows, n, 1, 2));
  OnGpu<T> weight(random_array<T>(n, 3)), bias(random_array<T>(n, 4));
  OnGpu<T> running_mean(random_array<T>(n, 5)), running_var(positive<T>(n));
  GridOnGpu<T> y(Grid<T>(c.rows, n, 2)), grad_x(Grid<T>(c.rows, n, 4));
  OnGpu<T> mean(n), inverse_std(n), grad_weight(n), grad_bias(n);
  BatchNormForward forward{
      x.view(),    weight.view(),      bias.view(),         y.view(),
      mean.view(), inverse_std.view(), running_mean.view(), running_var.view()};
  BatchNormBackward backward{x.view(),      weight.view(), mean.view(),        inverse_std.view(),
                             grad_y.view(), grad_x.view(), grad_weight.view(), grad_bias.view()};
  fill_calls(c, forward, backward);
  gpu().batch_norm_forward(gpu_stream(), forward);
  gpu().batch_norm_backward(gpu_stream(), backward);
  EXPECT_TRUE(y.grid().margin_is_untouched() && grad_x.grid().margin_is_untouched());
  return {in_double(y.grid()).content(), mean.as_double(),
          inverse_std.as_double(),       running_mean.as_double(),
          running_var.as_double(),       in_double(grad_x.grid()).content(),
          grad_weight.as_double(),       grad_bias.as_double()};
}

template <typename T>
void expect_same(const Case& c, double tolerance) {
  SCOPED_TRACE(::testing::Message() << c.rows << " x " << c.cols);
  const auto expected = on_cpu<T>(c), found = on_gpu<T>(c);
  for (std::size_t k = 0; k < expected.size(); ++k) {
    SCOPED_TRACE(k);
    expect_close(found[k], expected[k], tolerance, 1 + std::sqrt(double(c.rows)) * (k >= 6));
  }
}

TYPED_TEST(GpuBatchNorm, ForwardAndBackwardEqualTheCpu) {
  const double tolerance = 20 * kTolerance<TypeParam>;
  for (const Statistics statistics : {Statistics::batch, Statistics::running}) {
    for (const Affine affine : {Affine::no, Affine::yes}) {
      for (const std::size_t rows : {3u, 64u, 65u, 1000u}) {
        for (const std::size_t cols : {1u, 31u, 33u, 130u}) {
          expect_same<TypeParam>({rows, cols, statistics, affine}, tolerance);
        }
      }
    }
  }
}

TYPED_TEST(GpuBatchNorm, NoFeaturesIsNoWork) {
  expect_same<TypeParam>({7, 0, Statistics::batch, Affine::yes}, 0);
}

TYPED_TEST(GpuBatchNorm, OneRowHasNoVarianceAndNoRowsNoMean) {
  expect_same<TypeParam>({1, 5, Statistics::batch, Affine::yes}, 1e-3);
  expect_same<TypeParam>({0, 5, Statistics::batch, Affine::yes}, 1e-3);
  expect_same<TypeParam>({0, 5, Statistics::running, Affine::yes}, 1e-3);
}

TYPED_TEST(GpuBatchNorm, MoreFeaturesThanTheWorkspaceHoldsTakeSeveralLaunches) {
  expect_same<TypeParam>({9, 9'001, Statistics::batch, Affine::yes}, 20 * kTolerance<TypeParam>);
}

TYPED_TEST(GpuBatchNorm, ALargeMeanCostsNoDigitsOfTheVariance) {
  // 1000 and a spread of about 1: sums of x and x^2 in T would be off by a thousandth.
  const double rounding = 1000 * kTolerance<TypeParam>;
  expect_same<TypeParam>({500, 40, Statistics::batch, Affine::yes, 1000}, 5 * rounding);
}

}  // namespace
}  // namespace lockstep::kernels
