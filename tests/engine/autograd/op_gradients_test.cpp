// Every differentiable operation against central differences in double.
#include <gtest/gtest.h>

#include "engine/autograd/ops/ops.h"
#include "tests/support/devices.h"
#include "tests/support/expect_gradients_match.h"

namespace lockstep::testing {
namespace {

using Variables = std::vector<Variable>;
using Statistics = kernels::BatchNormForward::Statistics;

// Values whose distance from 0, where ReLU has its kink, is far more than a difference step.
Variable leaf_away_from_zero(const Shape& shape, std::uint64_t seed) {
  std::vector<double> values = random_tensor(shape, seed).to_vector<double>();
  for (double& value : values) value += value < 0 ? -0.1 : 0.1;
  return Variable(Tensor::from(values, shape), RequiresGrad::yes);
}

TEST(OpGradients, Add) {
  expect_gradients_match([](const Variables& in) { return add(in[0], in[1]); },
                         {random_leaf({3, 4}, 1), random_leaf({3, 4}, 2)});
}

TEST(OpGradients, AddOfAVariableToItself) {
  expect_gradients_match([](const Variables& in) { return add(in[0], in[0]); },
                         {random_leaf({5}, 1)});
}

TEST(OpGradients, Subtract) {
  expect_gradients_match([](const Variables& in) { return subtract(in[0], in[1]); },
                         {random_leaf({3, 4}, 1), random_leaf({3, 4}, 2)});
}

TEST(OpGradients, Multiply) {
  expect_gradients_match([](const Variables& in) { return multiply(in[0], in[1]); },
                         {random_leaf({3, 4}, 1), random_leaf({3, 4}, 2)});
}

TEST(OpGradients, MultiplyOfAVariableByItself) {
  expect_gradients_match([](const Variables& in) { return multiply(in[0], in[0]); },
                         {random_leaf({7}, 1)});
}

TEST(OpGradients, Scale) {
  expect_gradients_match([](const Variables& in) { return scale(in[0], -2.5); },
                         {random_leaf({3, 4}, 1)});
}

TEST(OpGradients, Sum) {
  expect_gradients_match([](const Variables& in) { return sum(in[0]); }, {random_leaf({3, 4}, 1)});
}

TEST(OpGradients, Mean) {
  expect_gradients_match([](const Variables& in) { return mean(in[0]); }, {random_leaf({3, 4}, 1)});
}

TEST(OpGradients, Reshape) {
  expect_gradients_match(
      [](const Variables& in) {
        return reshape(in[0], {2, 6});
      },
      {random_leaf({3, 4}, 1)});
}

TEST(OpGradients, ToAnotherDevice) {
  expect_gradients_match(
      [](const Variables& in) { return multiply(to(in[0], test_device(1)), in[1]); },
      {random_leaf({3, 4}, 1), random_leaf({3, 4}, 2, test_device(1))});
}

TEST(OpGradients, MatmulWithEveryTranspose) {
  for (const Transpose a : {Transpose::no, Transpose::yes}) {
    for (const Transpose b : {Transpose::no, Transpose::yes}) {
      const Shape shape_a = a == Transpose::no ? Shape{3, 5} : Shape{5, 3};
      const Shape shape_b = b == Transpose::no ? Shape{5, 4} : Shape{4, 5};
      expect_gradients_match([a, b](const Variables& in) { return matmul(in[0], in[1], a, b); },
                             {random_leaf(shape_a, 1), random_leaf(shape_b, 2)});
    }
  }
}

TEST(OpGradients, CrossEntropy) {
  const Tensor labels = Tensor::from(std::vector<std::int64_t>{2, 0, 1, 2, 2}, {5});
  for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
    expect_gradients_match(
        [&](const Variables& in) { return cross_entropy(in[0], labels, reduction); },
        {random_leaf({5, 3}, 1)});
  }
}

TEST(OpGradients, MseLoss) {
  const Tensor target = random_tensor({5, 3}, 2);
  for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
    expect_gradients_match([&](const Variables& in) { return mse_loss(in[0], target, reduction); },
                           {random_leaf({5, 3}, 1)});
  }
}

TEST(OpGradients, Dropout) {
  expect_gradients_match([](const Variables& in) { return dropout(in[0], 0.4, 7, 3); },
                         {random_leaf({6, 5}, 1)});
}

TEST(OpGradients, BatchNormOverTheBatch) {
  expect_gradients_match(
      [](const Variables& in) {
        return batch_norm(in[0], {in[1], in[2], {}, {}, 0.1, 1e-5, Statistics::batch});
      },
      {random_leaf({6, 4}, 1), random_leaf({4}, 2), random_leaf({4}, 3)});
}

TEST(OpGradients, BatchNormWithoutWeightAndBias) {
  expect_gradients_match(
      [](const Variables& in) {
        return batch_norm(in[0], {{}, {}, {}, {}, 0.1, 1e-5, Statistics::batch});
      },
      {random_leaf({6, 4}, 1)});
}

TEST(OpGradients, BatchNormWithRunningStatistics) {
  const Tensor mean = random_tensor({4}, 4);
  const Tensor var = Tensor::from(std::vector<double>{0.5, 1.0, 2.0, 3.0}, {4});
  expect_gradients_match(
      [&](const Variables& in) {
        return batch_norm(in[0], {in[1], in[2], mean, var, 0.1, 1e-5, Statistics::running});
      },
      {random_leaf({6, 4}, 1), random_leaf({4}, 2), random_leaf({4}, 3)});
}

TEST(OpGradients, GraphThatForksAndJoins) {
  expect_gradients_match(
      [](const Variables& in) {
        const Variable h = tanh(matmul(in[0], in[1]));
        return add(multiply(h, sigmoid(h)), scale(h, 3.0));
      },
      {random_leaf({3, 4}, 1), random_leaf({4, 2}, 2)});
}

class ActivationGradients : public ::testing::TestWithParam<Activation> {};

TEST_P(ActivationGradients, Alone) {
  expect_gradients_match([](const Variables& in) { return activate(in[0], GetParam()); },
                         {leaf_away_from_zero({4, 5}, 1)});
}

TEST_P(ActivationGradients, FusedIntoLinear) {
  expect_gradients_match(
      [](const Variables& in) { return linear(in[0], in[1], in[2], GetParam()); },
      {random_leaf({4, 5}, 1), random_leaf({3, 5}, 2), random_leaf({3}, 3)});
}

TEST_P(ActivationGradients, FusedIntoLinearWithoutBias) {
  expect_gradients_match([](const Variables& in) { return linear(in[0], in[1], {}, GetParam()); },
                         {random_leaf({4, 5}, 1), random_leaf({3, 5}, 2)});
}

TEST_P(ActivationGradients, FusedEqualsTheTwoOperations) {
  Variable x = random_leaf({4, 5}, 1);
  Variable w = random_leaf({3, 5}, 2);
  Variable b = random_leaf({3}, 3);
  const Tensor direction = random_tensor({4, 3}, 4);
  const Variable fused = linear(x, w, b, GetParam());
  fused.backward(direction);
  const Tensor grads[] = {x.grad(), w.grad(), b.grad()};
  for (Variable* leaf : {&x, &w, &b}) leaf->clear_grad();
  const Variable separate = activate(linear(x, w, b), GetParam());
  separate.backward(direction);
  expect_close(fused.value(), separate.value(), kFloat64);
  expect_close(grads[0], x.grad(), kFloat64);
  expect_close(grads[1], w.grad(), kFloat64);
  expect_close(grads[2], b.grad(), kFloat64);
}

std::string name_of(const ::testing::TestParamInfo<Activation>& info) {
  switch (info.param) {
    case Activation::none:
      return "none";
    case Activation::relu:
      return "relu";
    case Activation::gelu_erf:
      return "gelu_erf";
    case Activation::gelu_tanh:
      return "gelu_tanh";
    case Activation::tanh:
      return "tanh";
    case Activation::sigmoid:
      return "sigmoid";
  }
  return "unknown";
}

INSTANTIATE_TEST_SUITE_P(All, ActivationGradients,
                         ::testing::Values(Activation::none, Activation::relu, Activation::gelu_erf,
                                           Activation::gelu_tanh, Activation::tanh,
                                           Activation::sigmoid),
                         name_of);

}  // namespace
}  // namespace lockstep::testing
