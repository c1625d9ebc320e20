// The layers one by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/nn/layers.h"
#include "engine/nn/loss.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::expect_close;
using lockstep::testing::expect_error;
using lockstep::testing::kExact;
using lockstep::testing::kFloat64;
using lockstep::testing::random_tensor;

TEST(Linear, ComputesXTimesWeightTransposedPlusBias) {
  Rng rng(1);
  Linear layer(3, 2, rng, {Bias::yes, DType::float64});
  layer.parameters()[0].value().copy_from(
      Tensor::from(std::vector<double>{1, 2, 3, 4, 5, 6}, {2, 3}));
  layer.parameters()[1].value().copy_from(Tensor::from(std::vector<double>{10, 20}, {2}));
  const Variable y = layer(Variable(Tensor::from(std::vector<double>{1, 0, -1}, {1, 3})));
  EXPECT_EQ(y.value().to_vector<double>(), (std::vector<double>{8, 18}));
}

TEST(Linear, StartsUniformWithinPyTorchsBounds) {
  Rng rng(1);
  const Linear layer(100, 400, rng, {Bias::yes, DType::float64});
  const double bound = 0.1;
  ASSERT_EQ(layer.parameters().size(), 2u);
  for (const Variable& parameter : layer.parameters()) {
    const std::vector<double> values = parameter.value().to_vector<double>();
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    EXPECT_GE(*low, -bound);
    EXPECT_LT(*high, bound);
    EXPECT_LT(*low, -0.97 * bound);
    EXPECT_GT(*high, 0.97 * bound);
    double squares = 0;
    for (const double value : values) squares += value * value;
    const double variance = squares / static_cast<double>(values.size());
    EXPECT_NEAR(variance, bound * bound / 3, 0.1 * bound * bound);
  }
}

TEST(Linear, NeedsPositiveSizesAndAFittingInput) {
  Rng rng(1);
  expect_error(ErrorCode::Usage, "found in_features=0 and out_features=2",
               [&] { Linear(0, 2, rng); });
  Linear layer(3, 2, rng);
  expect_error(ErrorCode::Shape, "[linear] input [1, 4] does not fit weight [2, 3]", [&] {
    layer(Variable(Tensor::zeros({1, 4})));
  });
}

TEST(Activations, EqualTheirOperations) {
  const Variable x(random_tensor({3, 4}, 1));
  expect_close(ReLU()(x).value(), relu(x).value(), kExact);
  expect_close(Tanh()(x).value(), lockstep::tanh(x).value(), kExact);
  expect_close(Sigmoid()(x).value(), sigmoid(x).value(), kExact);
  expect_close(GELU()(x).value(), gelu(x, Activation::gelu_erf).value(), kExact);
  expect_close(GELU(GeluForm::tanh)(x).value(), gelu(x, Activation::gelu_tanh).value(), kExact);
}

// An input of four dimensions is images: image_ops_test.cpp has their order.
TEST(Flatten, JoinsAllDimensionsButTheFirst) {
  const Variable x(random_tensor({2, 3, 4, 5}, 1));
  EXPECT_EQ(Flatten()(x).shape(), (Shape{2, 60}));
  EXPECT_TRUE(Flatten(1, 2)(x).value().shares_memory_with(x.value()));
  EXPECT_EQ(Flatten(0)(x).shape(), (Shape{120}));
  EXPECT_EQ(Flatten(1, 2)(x).shape(), (Shape{2, 12, 5}));
  EXPECT_EQ(Flatten(-2, -1)(x).shape(), (Shape{2, 3, 20}));
  EXPECT_EQ(Flatten()(Variable(random_tensor({2, 3}, 1))).shape(), (Shape{2, 3}));
  expect_error(ErrorCode::Shape, "[Flatten] input [3] has no dimensions 1 to -1",
               [] { Flatten()(Variable(random_tensor({3}, 1))); });
}

TEST(Dropout, DropsInTrainingOnly) {
  Dropout layer(0.5, 1, 0);
  const Variable x(Tensor::full({10, 10}, 1.0));
  EXPECT_NE(layer(x).value().to_vector<float>(), x.value().to_vector<float>());
  layer.eval();
  EXPECT_TRUE(layer(x).is_same(x));
  expect_error(ErrorCode::Usage, "dropout probability has to be between 0 and 1, but got 1.5",
               [] { Dropout(1.5, 1, 0); });
}

TEST(BatchNorm1d, TrainsThenEvaluatesAsPyTorch) {
  // m = nn.BatchNorm1d(2, dtype=torch.float64)
  // a = torch.tensor([[1., 2.], [3., -4.], [.5, 1.]], dtype=torch.float64); m(a); m(2 * a);
  // m.eval() m(a), m.running_mean, m.running_var, m.num_batches_tracked
  BatchNormOptions options;
  options.dtype = DType::float64;
  BatchNorm1d layer(2, options);
  const Tensor a = Tensor::from(std::vector<double>{1, 2, 3, -4, 0.5, 1}, {3, 2});
  const Tensor b = Tensor::from(std::vector<double>{2, 4, 6, -8, 1, 2}, {3, 2});
  layer(Variable(a));
  layer(Variable(b));
  layer.eval();
  const Variable y = layer(Variable(a));
  expect_close(y.value(),
               std::vector<double>{0.43753643540287424, 0.8651406058189907, 1.9863379766519866,
                                   -1.6106194744261337, 0.05033605009059611, 0.45251392577813665},
               kFloat64);
  expect_close(layer.buffers()[0], std::vector<double>{0.43500000000000005, -0.09666666666666666},
               kFloat64);
  expect_close(layer.buffers()[1], std::vector<double>{1.6675, 5.873333333333334}, kFloat64);
  EXPECT_EQ(layer.buffers()[2].item(), 2);
}

}  // namespace
}  // namespace lockstep::nn
