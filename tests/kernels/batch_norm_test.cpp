#include "reference.h"

namespace lockstep::kernels {
namespace {

template <typename T>
class BatchNorm : public ::testing::Test {};
TYPED_TEST_SUITE(BatchNorm, Floating);

constexpr double kMomentum = 0.1, kEpsilon = 1e-5;

struct Case {
  std::size_t rows, features;
  Statistics statistics = Statistics::batch;
  bool has_affine = true;  // a weight and a bias
  double mean = 0;         // the inputs' mean
};

template <typename T>
struct Inputs {
  explicit Inputs(const Case& c)
      : x(random_grid<T>(c.rows, c.features, c.features % 8 == 0 ? 0 : 1, 1)),
        grad_y(random_grid<T>(c.rows, c.features, c.features % 8 == 0 ? 8 : 2, 2)),
        weight(random_values<T>(c.features, 3)),
        bias(random_values<T>(c.features, 4)),
        running_mean(random_values<T>(c.features, 5)),
        running_var(random_values<T>(c.features, 6)) {
    for (std::size_t i = 0; i < c.rows; ++i) {
      for (std::size_t j = 0; j < c.features; ++j) x(i, j) += static_cast<T>(c.mean);
    }
    for (T& value : running_var) value = std::fabs(value) + T(0.5);
    if (c.has_affine) return;
    weight.assign(c.features, T(1));
    bias.assign(c.features, T(0));
  }
  Grid<T> x, grad_y;
  std::vector<T> weight, bias, running_mean, running_var;
};

// Everything that both passes write.
template <typename T>
struct Results {
  std::vector<T> mean, inverse_std, running_mean, running_var, y, grad_x, grad_weight, grad_bias;
};

// By the definition, in double.
template <typename T>
Results<double> expected(const Inputs<T>& in, Statistics statistics) {
  const std::size_t rows = in.x.rows, features = in.x.cols;
  const double n = double(rows);
  Results<double> r;
  r.y.resize(rows * features);
  r.grad_x.resize(rows * features);
  for (std::size_t j = 0; j < features; ++j) {
    double mean = 0, variance = 0, grad_sum = 0, projection = 0;
    double running_mean = double(in.running_mean[j]), running_var = double(in.running_var[j]);
    const auto centred = [&](std::size_t i) { return double(in.x(i, j)) - mean; };
    if (statistics == Statistics::batch) {
      for (std::size_t i = 0; i < rows; ++i) mean += double(in.x(i, j));
      mean /= n;
      for (std::size_t i = 0; i < rows; ++i) variance += std::pow(centred(i), 2);
      variance /= n;
      running_mean += kMomentum * (mean - running_mean);
      running_var += kMomentum * (variance * n / (n - 1) - running_var);
    } else {
      mean = running_mean;
      variance = running_var;
    }
    const double scale = 1 / std::sqrt(variance + kEpsilon);
    for (std::size_t i = 0; i < rows; ++i) {
      r.y[i * features + j] = centred(i) * scale * double(in.weight[j]) + double(in.bias[j]);
      grad_sum += double(in.grad_y(i, j));
      projection += double(in.grad_y(i, j)) * centred(i);
    }
    projection *= scale;
    for (std::size_t i = 0; i < rows; ++i) {
      double grad = double(in.grad_y(i, j));
      if (statistics == Statistics::batch) grad -= (grad_sum + centred(i) * scale * projection) / n;
      r.grad_x[i * features + j] = double(in.weight[j]) * scale * grad;
    }
    r.mean.push_back(mean);
    r.inverse_std.push_back(scale);
    r.running_mean.push_back(running_mean);
    r.running_var.push_back(running_var);
    r.grad_weight.push_back(projection);
    r.grad_bias.push_back(grad_sum);
  }
  return r;
}

template <typename T>
Results<T> run(Stream& stream, const Inputs<T>& in, const Case& c) {
  const std::size_t n = c.features;
  const bool is_aligned = n % 8 == 0;  // all rows, or few
  const GridOnDevice<T> x(in.x), grad_y(in.grad_y), y(c.rows, n, is_aligned ? 8 : 3),
      grad_x(c.rows, n, is_aligned ? 0 : 1);
  const OnDevice<T> weight(in.weight), bias(in.bias), mean(n), inverse_std(n), grad_weight(n),
      grad_bias(n), running_mean(in.running_mean), running_var(in.running_var);
  const auto if_affine = [&](const OnDevice<T>& array) {
    return c.has_affine ? array.view() : TensorView{};
  };
  tested().batch_norm_forward(stream, {x.view(), if_affine(weight), if_affine(bias), y.view(),
                                       mean.view(), inverse_std.view(), running_mean.view(),
                                       running_var.view(), kMomentum, kEpsilon, c.statistics});
  tested().batch_norm_backward(
      stream, {x.view(), if_affine(weight), mean.view(), inverse_std.view(), grad_y.view(),
               grad_x.view(), if_affine(grad_weight), if_affine(grad_bias), c.statistics});
  return {mean.values(), inverse_std.values(), running_mean.values(), running_var.values(),
          y.content(),   grad_x.content(),     grad_weight.values(),  grad_bias.values()};
}

template <typename T>
void expect_definition(const Case& c) {
  SCOPED_TRACE(::testing::Message() << c.rows << " x " << c.features << ", " << int(c.statistics));
  const Inputs<T> in(c);
  const Results<double> r = expected(in, c.statistics);
  double scale = 1;  // the largest factor of a rounding error
  for (const double value : r.inverse_std) scale = std::max(scale, std::isnan(value) ? 1 : value);
  const double rounding = 4 * kTolerance<T> * (1 + c.mean), rows = 1 + double(c.rows);
  std::vector<T> one_thread;
  for_thread_counts([&](Stream& stream) {
    const Results<T> found = run(stream, in, c);
    expect_close(found.mean, r.mean, rounding);
    expect_close(found.inverse_std, r.inverse_std, rounding, scale);
    expect_close(found.running_mean, r.running_mean, rounding);
    expect_close(found.running_var, r.running_var, rounding);
    expect_close(found.y, r.y, rounding, 2 * scale);
    expect_close(found.grad_x, r.grad_x, rounding, 8 * scale * scale);
    if (c.has_affine) {
      expect_close(found.grad_weight, r.grad_weight, rounding, rows * scale);
      expect_close(found.grad_bias, r.grad_bias, rounding, rows);
    }
    if (one_thread.empty()) one_thread = found.grad_x;
    if (c.rows > 1) {
      EXPECT_EQ(found.grad_x, one_thread);
    }
  });
}

TYPED_TEST(BatchNorm, ForwardAndBackwardEqualTheDefinition) {
  for (const Statistics statistics : {Statistics::batch, Statistics::running}) {
    for (const bool has_affine : {false, true}) {
      for (const std::size_t rows : {2u, 7u, 65u, 300u}) {
        for (const std::size_t features : {0u, 1u, 33u, 64u, 129u}) {
          expect_definition<TypeParam>({rows, features, statistics, has_affine});
        }
      }
    }
  }
}

TYPED_TEST(BatchNorm, OneRowHasNoVariance) {
  expect_definition<TypeParam>({1, 5});
  expect_definition<TypeParam>({0, 5});
  expect_definition<TypeParam>({0, 5, Statistics::running});
}

TYPED_TEST(BatchNorm, TakesMoreFeaturesThanAWorkspaceHolds) {
  expect_definition<TypeParam>({9, 9'001});
  expect_definition<TypeParam>({9, 4'104});
}

// Sums of x and x^2 in T would be off by a thousandth.
TYPED_TEST(BatchNorm, ALargeMeanKeepsTheVariancesDigits) {
  expect_definition<TypeParam>({500, 40, Statistics::batch, true, 1000});
}

}  // namespace
}  // namespace lockstep::kernels
