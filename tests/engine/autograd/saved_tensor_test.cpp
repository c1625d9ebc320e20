// A tensor that forward saved must not have changed when backward uses it: every operation says so,
// and says nothing where the values do not matter.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "engine/autograd/ops/ops.h"
#include "tests/support/expect_error.h"
#include "tests/support/expect_gradients_match.h"

namespace lockstep::testing {
namespace {

TEST(SavedTensor, ChangedBeforeBackwardIsNamed) {
  const Variable x(Tensor::full({3}, 2.0, DType::float64), RequiresGrad::yes);
  const Variable y = sum(multiply(x, x));
  x.value().fill(100);
  expect_error(ErrorCode::State,
               "[backward] Multiply saved Tensor[3] float64 on cpu:0 in version 1, and it is in "
               "version 2 now: it was changed in place between forward and backward",
               [&] { y.backward(); });
  EXPECT_FALSE(x.grad().defined());
}

// An operation on x [2, 3] and w [2, 3], and what is changed behind its back.
struct Case {
  std::string operation;
  std::function<Variable(const Variable& x, const Variable& w)> forward;
  std::function<const Tensor&(const Variable& x, const Variable& w, const Variable& y)> changed;
};

const Tensor& change_x(const Variable& x, const Variable&, const Variable&) {
  return x.value();
}
const Tensor& change_w(const Variable&, const Variable& w, const Variable&) {
  return w.value();
}
const Tensor& change_y(const Variable&, const Variable&, const Variable& y) {
  return y.value();
}

Variable normalised(const Variable& x, const Variable& w) {
  BatchNormArguments arguments;
  arguments.weight = reshape(sum(w), {1});
  return batch_norm(reshape(x, {6, 1}), arguments);
}

TEST(SavedTensor, EveryOperationWatchesWhatItReadsAgain) {
  const auto nothing = Variable();
  const std::vector<Case> cases{
      {"Multiply", multiply, change_x},
      {"Multiply", multiply, change_w},
      {"ReLU", [](auto& x, auto&) { return relu(x); }, change_y},
      {"Tanh", [](auto& x, auto&) { return tanh(x); }, change_y},
      {"Sigmoid", [](auto& x, auto&) { return sigmoid(x); }, change_y},
      {"GELU", [](auto& x, auto&) { return gelu(x); }, change_x},
      {"Matmul", [](auto& x, auto& w) { return matmul(x, w, Transpose::no, Transpose::yes); },
       change_x},
      {"Matmul", [](auto& x, auto& w) { return matmul(x, w, Transpose::yes); }, change_w},
      {"Linear", [&](auto& x, auto& w) { return linear(x, w, nothing); }, change_x},
      {"Linear", [&](auto& x, auto& w) { return linear(x, w, nothing); }, change_w},
      {"Linear", [&](auto& x, auto& w) { return linear(x, w, nothing, Activation::relu); },
       change_y},
      {"MseLoss", [](auto& x, auto& w) { return mse_loss(x, w.value()); }, change_x},
      {"MseLoss", [](auto& x, auto& w) { return mse_loss(x, w.value()); }, change_w},
      {"BatchNorm", normalised, change_x},
  };
  for (const Case& c : cases) {
    const Variable x = random_leaf({2, 3}, 1);
    const Variable w = random_leaf({2, 3}, 2);
    const Variable y = c.forward(x, w);
    const Variable loss = sum(y);
    c.changed(x, w, y).fill(0.5);
    expect_error(ErrorCode::State, "[backward] " + c.operation + " saved Tensor",
                 [&] { loss.backward(); });
  }
}

TEST(SavedTensor, ValuesThatNoGradientDependsOnMayChange) {
  const Variable x = random_leaf({2, 3}, 1);
  const Variable y = sum(scale(add(subtract(x, x), reshape(x, {2, 3})), 2));
  x.value().fill(7);
  y.backward();
  EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(6, 2.0));

  // The first layer: nobody wants the gradient of the input, for which the weight would be read.
  const Variable input(Tensor::full({1, 3}, 5.0, DType::float64));
  const Variable weight = random_leaf({1, 3}, 2);
  const Variable out = sum(linear(input, weight, {}));
  weight.value().fill(0);
  out.backward();
  EXPECT_EQ(weight.grad().to_vector<double>(), std::vector<double>(3, 5.0));
}

TEST(SavedTensor, ReplacingALeafsTensorChangesNothingSaved) {
  Variable x(Tensor::full({1}, 2.0, DType::float64), RequiresGrad::yes);
  const Variable y = sum(multiply(x, x));
  x.set_value(Tensor::full({1}, 100.0, DType::float64));
  y.backward();
  EXPECT_EQ(x.grad().item(), 4.0);
}

TEST(SavedTensor, AfterBackwardEverythingMayChange) {
  const Variable x = random_leaf({3}, 1);
  for (int step = 0; step < 3; ++step) {
    sum(multiply(x, x)).backward();
    x.value().fill(step);
  }
  const Variable y = sum(multiply(x, x));
  y.backward({}, Graph::retain);
  y.backward({}, Graph::retain);
  x.value().fill(9);
  expect_error(ErrorCode::State, "Multiply saved", [&] { y.backward(); });
}

}  // namespace
}  // namespace lockstep::testing
