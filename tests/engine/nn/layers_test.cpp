// The layers one by one.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/nn/layers.h"
#include "engine/nn/loss.h"
#include "tests/support/devices.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::expect_close;
using lockstep::testing::expect_error;
using lockstep::testing::kExact;
using lockstep::testing::kFloat64;
using lockstep::testing::random_tensor;
using lockstep::testing::test_device_type;

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

// torch.relu, F.gelu(x), F.gelu(x, approximate='tanh'), torch.tanh and torch.sigmoid of this x.
TEST(Activations, HavePyTorchsValues) {
  const Variable x(Tensor::from(std::vector<double>{-2.0, -0.5, 0.25, 1.5}, {4}));
  expect_close(ReLU()(x).value(), {0.0, 0.0, 0.25, 1.5}, kFloat64);
  expect_close(GELU()(x).value(),
               {-0.04550026389635842, -0.15426876936299344, 0.14967658142073093, 1.399789198096713},
               kFloat64);
  expect_close(GELU(GeluForm::tanh)(x).value(),
               {-0.04540230591222494, -0.15428599017485606, 0.149675350701685, 1.3995715769802328},
               kFloat64);
  expect_close(Tanh()(x).value(),
               {-0.9640275800758169, -0.46211715726000974, 0.24491866240370913, 0.9051482536448664},
               kFloat64);
  expect_close(Sigmoid()(x).value(),
               {0.11920292202211755, 0.3775406687981454, 0.5621765008857981, 0.8175744761936437},
               kFloat64);
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

// --- Sequential, and the fusion of Linear with the activation after it

const LinearOptions kWide{Bias::yes, DType::float64};

std::vector<std::shared_ptr<Module>> layers() {
  Rng rng(1);
  return {std::make_shared<Linear>(3, 5, rng, kWide),
          std::make_shared<GELU>(),
          std::make_shared<Linear>(5, 4, rng, kWide),
          std::make_shared<Linear>(4, 2, rng, kWide),
          std::make_shared<Tanh>(),
          std::make_shared<Sigmoid>()};
}

// A stack in which every activation but the last lies between two Linears.
std::vector<std::shared_ptr<Module>> stack() {
  Rng rng(7);
  return {std::make_shared<Linear>(3, 5, rng, kWide), std::make_shared<ReLU>(),
          std::make_shared<Linear>(5, 9, rng, kWide), std::make_shared<GELU>(GeluForm::tanh),
          std::make_shared<Linear>(9, 4, rng, kWide), std::make_shared<Sigmoid>(),
          std::make_shared<Linear>(4, 6, rng, kWide), std::make_shared<GELU>(),
          std::make_shared<Linear>(6, 2, rng, kWide), std::make_shared<Tanh>()};
}

TEST(Sequential, EqualsItsLayersOneByOne) {
  for (const auto& modules : {layers(), stack()}) {
    Sequential model(modules);
    const Variable x(random_tensor({4, 3}, 1), RequiresGrad::yes);
    const Tensor direction = random_tensor({4, 2}, 2);
    const Variable fused = model(x);
    fused.backward(direction);
    std::vector<Tensor> grads{x.grad()};
    for (const Variable& parameter : model.parameters()) grads.push_back(parameter.grad());
    model.zero_grad();
    Variable(x).clear_grad();
    Variable y = x;
    for (std::size_t i = 0; i < model.size(); ++i) y = model[i](y);
    y.backward(direction);
    // A GPU's library may sum in another order where it does more in one kernel.
    const auto tolerance = test_device_type() == DeviceType::cpu ? kExact : kFloat64;
    expect_close(fused.value(), y.value(), tolerance);
    expect_close(grads[0], x.grad(), tolerance);
    for (std::size_t i = 0; i < model.parameters().size(); ++i) {
      expect_close(grads[i + 1], model.parameters()[i].grad(), tolerance);
    }
  }
}

TEST(Sequential, AFrozenLayerPassesItsGradientOn) {
  Sequential model(stack());
  Sequential frozen(stack());
  for (const char* name : {"2.weight", "2.bias", "6.weight"}) {
    for (auto& [its_name, parameter] : frozen.named_parameters()) {
      if (its_name == name) Variable(parameter).set_requires_grad(RequiresGrad::no);
    }
  }
  const Variable x(random_tensor({4, 3}, 1));
  const Tensor direction = random_tensor({4, 2}, 2);
  model(x).backward(direction);
  frozen(x).backward(direction);
  EXPECT_EQ(frozen[0].parameters()[0].grad().to_vector<double>(),
            model[0].parameters()[0].grad().to_vector<double>());
  EXPECT_FALSE(frozen[2].parameters()[0].grad().defined());
}

}  // namespace
}  // namespace lockstep::nn
