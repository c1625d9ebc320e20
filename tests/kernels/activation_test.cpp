#include "activation_reference.h"

#include "reference.h"

namespace lockstep::kernels {
namespace {

template <typename T>
class ActivationKernel : public ::testing::Test {};
TYPED_TEST_SUITE(ActivationKernel, Floating);

// Values of every magnitude from 1e-8 to 100, both signs, zero and the ends of what exp can give.
template <typename T>
std::vector<T> many_magnitudes() {
  std::vector<T> result{T(0), T(-0.0), T(0.625), T(-0.625)};
  for (double x = 1e-8; x < 120; x *= 1.003) {
    result.push_back(static_cast<T>(x));
    result.push_back(static_cast<T>(-x));
  }
  return result;
}

// Calls forward on these values, beside and in place.
template <typename T>
std::vector<T> forward(Activation activation, const std::vector<T>& x, std::size_t skew = 0) {
  const OnDevice<T> in(x, skew), out(x.size());
  tested().activation_forward(stream_with(2), {activation, in.view(), out.view()});
  tested().activation_forward(stream_with(2), {activation, in.view(), in.view()});
  EXPECT_EQ(in.values().size(), x.size());
  return out.values();
}

TYPED_TEST(ActivationKernel, ForwardEqualsTheDefinition) {
  using T = TypeParam;
  for (const Activation activation : kActivations) {
    SCOPED_TRACE(int(activation));
    std::vector<std::vector<T>> inputs{many_magnitudes<T>()};
    for (const std::size_t size : kSizes) inputs.push_back(random_values<T>(size, 3));
    for (const auto& x : inputs) {
      std::vector<double> expected;
      for (const T value : x) expected.push_back(activate(activation, double(value)));
      for (const std::size_t skew : {0u, 1u}) {
        expect_close(forward(activation, x, skew), expected);
      }
    }
  }
}

TYPED_TEST(ActivationKernel, SmallValuesKeepTheirRelativeAccuracy) {
  using T = TypeParam;
  std::vector<T> x;
  for (double value = 1e-8; value < 1; value *= 1.01) x.push_back(static_cast<T>(value));
  for (const Activation activation :
       {Activation::tanh, Activation::gelu_erf, Activation::gelu_tanh}) {
    const auto y = forward(activation, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double expected = activate(activation, double(x[i]));
      ASSERT_NEAR(double(y[i]) / expected, 1, kTolerance<T>) << int(activation) << " of " << x[i];
    }
  }
}

TYPED_TEST(ActivationKernel, BackwardIsTheGradientTimesTheSlope) {
  using T = TypeParam;
  for (const Activation activation : kActivations) {
    SCOPED_TRACE(int(activation));
    const auto x = many_magnitudes<T>();
    const auto grad = random_values<T>(x.size(), 5);
    std::vector<double> expected;
    for (std::size_t i = 0; i < x.size(); ++i) {
      expected.push_back(double(grad[i]) * slope(activation, double(x[i])));
    }
    const OnDevice<T> before(x), after(forward(activation, x)), grad_y(grad), grad_x(x.size());
    const auto& saved = needs_preactivation(activation) ? before : after;
    tested().activation_backward(stream(),
                                 {activation, saved.view(), grad_y.view(), grad_x.view()});
    expect_close(grad_x.values(), expected, 4 * kTolerance<T>);
    tested().activation_backward(stream(),
                                 {activation, saved.view(), grad_y.view(), grad_y.view()});
    EXPECT_EQ(grad_y.values(), grad_x.values());
  }
}

TYPED_TEST(ActivationKernel, InfinitiesReachTheirLimits) {
  using T = TypeParam;
  const double limits[][2] = {{-kInfinity, kInfinity}, {0, kInfinity}, {kNaN, kInfinity},
                              {kNaN, kInfinity},       {-1, 1},        {0, 1}};
  for (const Activation activation : kActivations) {
    // Several of each, so that vectors and the rest of them are seen.
    const auto y = forward(activation, std::vector<T>(5, T(kNaN)));
    for (const T value : y) EXPECT_TRUE(std::isnan(value)) << int(activation);
    for (const int end : {0, 1}) {
      const double limit = limits[std::size_t(activation)][end];
      if (std::isnan(limit)) continue;  // -infinity times 0, in GELU
      const auto at_end = forward(activation, std::vector<T>(5, T(end ? kInfinity : -kInfinity)));
      EXPECT_EQ(at_end, std::vector<T>(5, T(limit))) << int(activation);
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels
