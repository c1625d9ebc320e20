#include "activation_reference.h"

#include "reference.h"

namespace lockstep::kernels {
namespace {

template <typename T>
class ActivationKernel : public ::testing::Test {};
TYPED_TEST_SUITE(ActivationKernel, Floating);

// Values of every magnitude from 1e-8 to 100, both signs, zero and the ends of what exp can give.
template <typename T>
Array<T> many_magnitudes() {
  Array<T> result(0);
  for (double x = 1e-8; x < 120; x *= 1.003) {
    result.values.push_back(static_cast<T>(x));
    result.values.push_back(static_cast<T>(-x));
  }
  result.values.insert(result.values.end(), {T(0), T(-0.0), T(0.625), T(-0.625)});
  return result;
}

TYPED_TEST(ActivationKernel, ForwardEqualsTheDefinition) {
  using T = TypeParam;
  for (const Activation activation : kActivations) {
    SCOPED_TRACE(int(activation));
    auto x = many_magnitudes<T>();
    std::vector<double> expected;
    for (const T value : x.values) expected.push_back(activate(activation, double(value)));
    Array<T> y(x.size());
    cpu().activation_forward(stream_with(1), activation, x.view(), y.view());
    expect_close(y.values, expected, kTolerance<T>);
    cpu().activation_forward(stream_with(1), activation, x.view(), x.view());  // in place
    EXPECT_EQ(x.values, y.values);
  }
}

TYPED_TEST(ActivationKernel, SmallValuesKeepTheirRelativeAccuracy) {
  using T = TypeParam;
  for (const Activation activation :
       {Activation::tanh, Activation::gelu_erf, Activation::gelu_tanh}) {
    for (double x = 1e-8; x < 1; x *= 1.01) {
      Array<T> in(std::vector<T>{T(x)}), out(1);
      cpu().activation_forward(stream_with(1), activation, in.view(), out.view());
      const double expected = activate(activation, double(in[0]));
      ASSERT_NEAR(double(out[0]) / expected, 1, kTolerance<T>) << int(activation) << " of " << x;
    }
  }
}

TYPED_TEST(ActivationKernel, BackwardIsTheGradientTimesTheSlope) {
  using T = TypeParam;
  for (const Activation activation : kActivations) {
    SCOPED_TRACE(int(activation));
    auto x = many_magnitudes<T>();
    auto grad = random_array<T>(x.size(), 5);
    Array<T> y(x.size()), result(x.size());
    cpu().activation_forward(stream_with(1), activation, x.view(), y.view());
    std::vector<double> expected;
    for (std::size_t i = 0; i < x.size(); ++i) {
      expected.push_back(double(grad[i]) * slope(activation, double(x[i])));
    }
    auto& saved = needs_preactivation(activation) ? x : y;
    cpu().activation_backward(stream_with(1), activation, saved.view(), grad.view(), result.view());
    expect_close(result.values, expected, 4 * kTolerance<T>);
    cpu().activation_backward(stream_with(1), activation, saved.view(), grad.view(), grad.view());
    EXPECT_EQ(grad.values, result.values);
  }
}

TYPED_TEST(ActivationKernel, NaNStaysNaNAndInfinitiesReachTheirLimits) {
  using T = TypeParam;
  const auto at = [](Activation activation, double x) {
    Array<T> in(std::vector<T>(5, static_cast<T>(x))), out(5);
    cpu().activation_forward(stream_with(1), activation, in.view(), out.view());
    for (const T value : out.values) EXPECT_TRUE(value == out[0] || std::isnan(out[0]));
    return double(out[0]);
  };
  for (const Activation activation : kActivations) {
    EXPECT_TRUE(std::isnan(at(activation, kNaN))) << int(activation);
  }
  EXPECT_EQ(at(Activation::relu, kInfinity), kInfinity);
  EXPECT_EQ(at(Activation::relu, -kInfinity), 0);
  EXPECT_EQ(at(Activation::tanh, kInfinity), 1);
  EXPECT_EQ(at(Activation::tanh, -kInfinity), -1);
  EXPECT_EQ(at(Activation::sigmoid, kInfinity), 1);
  EXPECT_EQ(at(Activation::sigmoid, -kInfinity), 0);
  EXPECT_EQ(at(Activation::gelu_erf, kInfinity), kInfinity);
  EXPECT_EQ(at(Activation::gelu_tanh, kInfinity), kInfinity);
}

TYPED_TEST(ActivationKernel, ReluLetsNoGradientThroughWhereItsValueIsZero) {
  using T = TypeParam;
  Array<T> y(std::vector<T>{0, 1, T(kNaN), 0});
  Array<T> grad(std::vector<T>{T(kNaN), 2, 3, T(kInfinity)});
  Array<T> result(4);
  cpu().activation_backward(stream_with(1), Activation::relu, y.view(), grad.view(), result.view());
  EXPECT_EQ(result.values, (std::vector<T>{0, 2, 3, 0}));
}

}  // namespace
}  // namespace lockstep::kernels
