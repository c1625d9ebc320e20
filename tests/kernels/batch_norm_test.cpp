#include "reference.h"

namespace lockstep::kernels {
namespace {

using Statistics = BatchNormForward::Statistics;

template <typename T>
class BatchNorm : public ::testing::Test {};
TYPED_TEST_SUITE(BatchNorm, Floating);

struct Sizes {
  std::size_t rows, features;
};
constexpr Sizes kBatches[] = {{2, 1}, {7, 33}, {300, 129}, {33, 1000}};
constexpr double kEpsilon = 1e-5;

// Everything of one call in double.
struct Reference {
  std::vector<double> mean, inverse_std, unbiased, y, grad_x, grad_weight, grad_bias;
};

template <typename T>
Reference reference(const Grid<T>& x, const Array<T>& weight, const Array<T>& bias,
                    const Grid<T>& grad_y) {
  const double n = double(x.rows);
  Reference r;
  r.y.resize(x.rows * x.cols);
  r.grad_x.resize(x.rows * x.cols);
  for (std::size_t j = 0; j < x.cols; ++j) {
    double mean = 0, variance = 0, grad_sum = 0, projection = 0;
    for (std::size_t i = 0; i < x.rows; ++i) mean += double(x(i, j)) / n;
    for (std::size_t i = 0; i < x.rows; ++i) variance += std::pow(double(x(i, j)) - mean, 2) / n;
    const double scale = 1 / std::sqrt(variance + kEpsilon);
    for (std::size_t i = 0; i < x.rows; ++i) {
      const double normal = (double(x(i, j)) - mean) * scale;
      r.y[i * x.cols + j] = normal * double(weight.values[j]) + double(bias.values[j]);
      grad_sum += double(grad_y(i, j));
      projection += double(grad_y(i, j)) * normal;
    }
    for (std::size_t i = 0; i < x.rows; ++i) {
      const double normal = (double(x(i, j)) - mean) * scale;
      r.grad_x[i * x.cols + j] = double(weight.values[j]) * scale *
                                 (double(grad_y(i, j)) - grad_sum / n - normal * projection / n);
    }
    r.mean.push_back(mean);
    r.inverse_std.push_back(scale);
    r.unbiased.push_back(variance * n / (n - 1));
    r.grad_weight.push_back(projection);
    r.grad_bias.push_back(grad_sum);
  }
  return r;
}

TYPED_TEST(BatchNorm, TrainingForwardAndBackwardEqualTheDefinition) {
  using T = TypeParam;
  for (const Sizes& s : kBatches) {
    SCOPED_TRACE(::testing::Message() << s.rows << " x " << s.features);
    auto x = random_grid<T>(s.rows, s.features, 1, 1);
    auto grad_y = random_grid<T>(s.rows, s.features, 2, 2);
    auto weight = random_array<T>(s.features, 3);
    auto bias = random_array<T>(s.features, 4);
    const Reference r = reference(x, weight, bias, grad_y);
    std::vector<double> running_mean, running_var;
    for (std::size_t j = 0; j < s.features; ++j) {
      running_mean.push_back(0.9 * 1 + 0.1 * r.mean[j]);
      running_var.push_back(0.9 * 2 + 0.1 * r.unbiased[j]);
    }
    std::vector<std::vector<T>> results;
    for_thread_counts([&](Stream& stream) {
      Grid<T> y(s.rows, s.features, 3), grad_x(s.rows, s.features, 1);
      Array<T> mean(s.features), inverse_std(s.features), moving_mean(s.features, 1),
          moving_var(s.features, 2), grad_weight(s.features), grad_bias(s.features);
      cpu().batch_norm_forward(
          stream, {x.view(), weight.view(), bias.view(), y.view(), mean.view(), inverse_std.view(),
                   moving_mean.view(), moving_var.view(), 0.1, kEpsilon, Statistics::batch});
      const double scale = 4 * *std::max_element(r.inverse_std.begin(), r.inverse_std.end());
      expect_close(y.content(), r.y, kTolerance<T>, 2 * scale);
      expect_close(mean.values, r.mean);
      expect_close(inverse_std.values, r.inverse_std, 2 * kTolerance<T>, scale);
      expect_close(moving_mean.values, running_mean);
      expect_close(moving_var.values, running_var);
      cpu().batch_norm_backward(
          stream, {x.view(), weight.view(), mean.view(), inverse_std.view(), grad_y.view(),
                   grad_x.view(), grad_weight.view(), grad_bias.view(), Statistics::batch});
      expect_close(grad_x.content(), r.grad_x, kTolerance<T>, 8 * scale * scale);
      expect_close(grad_weight.values, r.grad_weight, 4 * kTolerance<T>, double(s.rows) * scale);
      expect_close(grad_bias.values, r.grad_bias, 4 * kTolerance<T>, double(s.rows));
      EXPECT_TRUE(y.margin_is_untouched() && grad_x.margin_is_untouched());
      results.push_back(grad_x.values);
    });
    EXPECT_EQ(results[1], results[0]);
    EXPECT_EQ(results[2], results[0]);
  }
}

TYPED_TEST(BatchNorm, EvaluationUsesTheRunningStatisticsAndLeavesThem) {
  using T = TypeParam;
  auto x = random_grid<T>(6, 5, 0, 1);
  auto grad_y = random_grid<T>(6, 5, 0, 2);
  Grid<T> y(6, 5), grad_x(6, 5);
  Array<T> mean(5), inverse_std(5), running_mean(5, T(0.5)), running_var(5, T(4));
  cpu().batch_norm_forward(stream_with(1), {x.view(),
                                            {},
                                            {},
                                            y.view(),
                                            mean.view(),
                                            inverse_std.view(),
                                            running_mean.view(),
                                            running_var.view(),
                                            0.1,
                                            0,
                                            Statistics::running});
  cpu().batch_norm_backward(stream_with(1), {x.view(),
                                             {},
                                             mean.view(),
                                             inverse_std.view(),
                                             grad_y.view(),
                                             grad_x.view(),
                                             {},
                                             {},
                                             Statistics::running});
  for (std::size_t i = 0; i < 30; ++i) {
    EXPECT_NEAR(double(y.values[i]), (double(x.values[i]) - 0.5) / 2, 1e-6);
    EXPECT_NEAR(double(grad_x.values[i]), double(grad_y.values[i]) / 2, 1e-6);
  }
  EXPECT_EQ(running_mean.values, std::vector<T>(5, T(0.5)));
  EXPECT_EQ(running_var.values, std::vector<T>(5, T(4)));
}

}  // namespace
}  // namespace lockstep::kernels
