// Layer normalisation beside its definition in double.
#include "reference.h"

namespace lockstep::kernels {
namespace {

template <typename T>
class LayerNorm : public ::testing::Test {};
TYPED_TEST_SUITE(LayerNorm, Floating);

struct NormCase {
  std::size_t rows, features;
  double mean = 0;  // the inputs' mean
};
constexpr NormCase kNormCases[] = {{1, 1}, {3, 7}, {130, 33}, {0, 5}, {67, 768}, {5, 64, 100}};
constexpr double kNormEpsilon = 1e-5;

struct NormResults {
  std::vector<double> y, mean, inverse_std, grad_x, grad_weight, grad_bias;
};

template <typename T>
NormResults expected(const Grid<T>& x, const std::vector<T>& weight, const std::vector<T>& bias,
                     const Grid<T>& grad_y) {
  const double n = double(x.cols);
  NormResults e;
  e.grad_weight.resize(x.cols);
  e.grad_bias.resize(x.cols);
  for (std::size_t i = 0; i < x.rows; ++i) {
    double mean = 0, variance = 0, offset = 0, slope = 0;
    for (std::size_t j = 0; j < x.cols; ++j) mean += double(x(i, j)) / n;
    for (std::size_t j = 0; j < x.cols; ++j) variance += std::pow(double(x(i, j)) - mean, 2) / n;
    const double scale = 1 / std::sqrt(variance + kNormEpsilon);
    const auto normal = [&](std::size_t j) { return (double(x(i, j)) - mean) * scale; };
    for (std::size_t j = 0; j < x.cols; ++j) {
      e.y.push_back(normal(j) * double(weight[j]) + double(bias[j]));
      offset += double(grad_y(i, j) * weight[j]) / n;
      slope += double(grad_y(i, j) * weight[j]) * normal(j) / n;
      e.grad_weight[j] += double(grad_y(i, j)) * normal(j);
      e.grad_bias[j] += double(grad_y(i, j));
    }
    for (std::size_t j = 0; j < x.cols; ++j) {
      e.grad_x.push_back(scale * (double(grad_y(i, j) * weight[j]) - offset - normal(j) * slope));
    }
    e.mean.push_back(mean);
    e.inverse_std.push_back(scale);
  }
  return e;
}

TYPED_TEST(LayerNorm, EqualsItsDefinition) {
  using T = TypeParam;
  for (const NormCase& c : kNormCases) {
    SCOPED_TRACE(::testing::Message() << c.rows << " x " << c.features);
    auto x = random_grid<T>(c.rows, c.features, 1, 1);
    for (std::size_t i = 0; i < c.rows; ++i) {
      for (std::size_t j = 0; j < c.features; ++j) x(i, j) += T(c.mean);
    }
    const auto grad_y = random_grid<T>(c.rows, c.features, 2, 2);
    const auto weight = random_values<T>(c.features, 3), bias = random_values<T>(c.features, 4);
    const NormResults e = expected(x, weight, bias, grad_y);
    const GridOnDevice<T> on_x(x), on_grad(grad_y);
    const OnDevice<T> on_weight(weight), on_bias(bias);
    const double tolerance = kTolerance<T> * (1 + c.mean);
    std::vector<T> first;
    for_thread_counts([&](Stream& stream) {
      const GridOnDevice<T> y(c.rows, c.features, 3), grad_x(c.rows, c.features, 1);
      const OnDevice<T> mean(c.rows), inverse_std(c.rows), grad_weight(c.features, T(9)),
          grad_bias(c.features, T(9));
      tested().layer_norm_forward(stream, {on_x.view(), on_weight.view(), on_bias.view(), y.view(),
                                           mean.view(), inverse_std.view(), kNormEpsilon});
      expect_close(y.content(), e.y, tolerance, 8);
      expect_close(mean.values(), e.mean, tolerance);
      expect_close(inverse_std.values(), e.inverse_std, tolerance);
      tested().layer_norm_backward(
          stream, {on_x.view(), on_weight.view(), mean.view(), inverse_std.view(), on_grad.view(),
                   grad_x.view(), grad_weight.view(), grad_bias.view()});
      const double largest_scale = c.features == 1 ? 1e3 : 20;
      expect_close(grad_x.content(), e.grad_x, tolerance, largest_scale);
      expect_close(grad_weight.values(), e.grad_weight, tolerance, 40);
      expect_close(grad_bias.values(), e.grad_bias, tolerance, 40);
      auto bits = grad_weight.values();
      const auto more = grad_x.content();
      bits.insert(bits.end(), more.begin(), more.end());
      if (first.empty()) first = bits;
      EXPECT_EQ(bits, first);  // whatever the number of threads
    });
  }
}

TEST(LayerNormGradients, MayBeLeftOut) {
  const GridOnDevice<float> x(random_grid<float>(5, 6, 0, 1)),
      grad_y(random_grid<float>(5, 6, 0, 2)), y(5, 6), both(5, 6), alone(5, 6);
  const OnDevice<float> weight(random_values<float>(6, 3)), bias(6), mean(5), scale(5),
      grad_weight(6);
  tested().layer_norm_forward(
      stream(), {x.view(), weight.view(), bias.view(), y.view(), mean.view(), scale.view()});
  tested().layer_norm_backward(stream(), {x.view(),
                                          weight.view(),
                                          mean.view(),
                                          scale.view(),
                                          grad_y.view(),
                                          both.view(),
                                          grad_weight.view(),
                                          {}});
  tested().layer_norm_backward(
      stream(),
      {x.view(), weight.view(), mean.view(), scale.view(), grad_y.view(), alone.view(), {}, {}});
  EXPECT_EQ(alone.content(), both.content());
}

}  // namespace
}  // namespace lockstep::kernels
