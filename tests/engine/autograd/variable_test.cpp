// A Variable's promises about values, leaves and grad mode.
#include "engine/autograd/variable.h"

#include <gtest/gtest.h>

#include <functional>
#include <tuple>
#include <vector>

#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "tests/support/expect_error.h"
#include "tests/support/expect_gradients_match.h"

namespace lockstep::testing {
namespace {

TEST(Variable, EveryUseOfAnUndefinedOneSaysSo) {
  Variable undefined;
  const Variable x = random_leaf({2, 3}, 1);
  const std::vector<std::function<void()>> uses{
      [&] { undefined.value(); },
      [&] { undefined.set_value(x.value()); },
      [&] { undefined.requires_grad(); },
      [&] { undefined.node(); },
      [&] { undefined.grad(); },
      [&] { undefined.clear_grad(); },
      [&] { undefined.set_grad_slot({}); },
      [&] { undefined.on_grad_ready([](const Variable&) {}); },
      [&] { undefined.backward(); },
      [&] { undefined.detach(); },
      [&] { add(x, undefined); },
      [&] { multiply(undefined, x); },
      [&] { scale(undefined, 2); },
      [&] { relu(undefined); },
      [&] { mean(undefined); },
      [&] { matmul(x, undefined); },
      [&] { linear(x, undefined, {}); },
      [&] { reshape(undefined, {1}); },
      [&] { to(undefined, Device{}); },
      [&] { cross_entropy(undefined, Tensor::zeros({2}, DType::int64)); },
      [&] { mse_loss(undefined, x.value()); },
      [&] { dropout(undefined, 0.5, 0, 0); },
      [&] { batch_norm(undefined, {}); },
  };
  for (const auto& use : uses) expect_error(ErrorCode::State, "[variable] is undefined", use);
  EXPECT_FALSE(undefined.defined());
  expect_error(ErrorCode::State, "needs a defined tensor", [] { Variable{Tensor()}; });
}

TEST(Variable, ConstantsGetNoGradient) {
  const Variable leaf = random_leaf({3}, 1);
  const Variable constant(random_tensor({3}, 2));
  sum(multiply(leaf, constant)).backward();
  EXPECT_FALSE(constant.grad().defined());
  expect_close(leaf.grad(), constant.value(), kExact);
}

TEST(Variable, NoGradScopeRecordsNothingAndEnds) {
  const Variable leaf = random_leaf({3}, 1);
  {
    NoGradScope no_grad;
    EXPECT_FALSE(grad_enabled());
    EXPECT_FALSE(scale(leaf, 2.0).requires_grad());
    { NoGradScope inner; }
    EXPECT_FALSE(grad_enabled());
  }
  EXPECT_TRUE(grad_enabled());
  EXPECT_TRUE(scale(leaf, 2.0).requires_grad());
}

TEST(Variable, DetachSharesTheValueAndCutsTheGraph) {
  const Variable leaf = random_leaf({3}, 1);
  const Variable y = scale(leaf, 2.0);
  const Variable cut = y.detach();
  EXPECT_TRUE(cut.value().shares_memory_with(y.value()));
  EXPECT_FALSE(cut.requires_grad());
  EXPECT_TRUE(cut.is_leaf());
}

TEST(Variable, RefusesValuesAndGradientsThatDoNotFit) {
  Variable leaf = random_leaf({3}, 1);
  Variable result = scale(leaf, 2.0);
  sum(leaf).backward();
  const Tensor integers = Tensor::zeros({3}, DType::int64);
  const std::tuple<ErrorCode, const char*, std::function<void()>> mistakes[] = {
      {ErrorCode::DType, "gradients need a floating dtype, found int64",
       [&] { Variable(integers, RequiresGrad::yes); }},
      {ErrorCode::State, "only a leaf's tensor can be replaced; this is the result of Scale",
       [&] { result.set_value(Tensor::zeros({3}, DType::float64)); }},
      {ErrorCode::State, "only a leaf can change it",
       [&] { result.set_requires_grad(RequiresGrad::no); }},
      {ErrorCode::State, "[set_value] needs a defined tensor", [&] { leaf.set_value({}); }},
      {ErrorCode::DType, "[set_value] gradients need a floating dtype, found int64",
       [&] { leaf.set_value(integers); }},
      {ErrorCode::Shape, "[set_value] shapes [2] and [3] differ",
       [&] { leaf.set_value(random_tensor({2}, 1)); }},
      {ErrorCode::Shape, "[set_grad] shapes [3] and [2] differ",
       [&] { leaf.set_grad(random_tensor({2}, 1)); }},
      {ErrorCode::DType, "[set_grad] all tensors must have one dtype",
       [&] { leaf.set_grad(Tensor::zeros({3}, DType::float32)); }},
      {ErrorCode::Device, "[set_grad] all tensors must be on one device",
       [&] { leaf.set_grad(Tensor::zeros({3}, DType::float64, test_device(1))); }},
      {ErrorCode::Usage, "[on_grad_ready] there is no function to call",
       [&] { leaf.on_grad_ready(nullptr); }},
  };
  for (const auto& [code, words, mistake] : mistakes) expect_error(code, words, mistake);
}

TEST(Variable, AGradientThatNoLongerFitsIsRefused) {
  for (const Tensor& replacement : {random_tensor({2}, 2), Tensor::zeros({3}, DType::float32),
                                    Tensor::zeros({3}, DType::float64, test_device(1))}) {
    Variable leaf = random_leaf({3}, 1);
    const Variable y = sum(scale(leaf, 2.0));
    leaf.set_value(replacement);
    expect_error(
        ErrorCode::State,
        "[backward] the gradient of a leaf is Tensor[3] float64 on cpu:0, but the leaf is " +
            describe(replacement) + " now",
        [&] { y.backward(); });
    EXPECT_FALSE(leaf.grad().defined());
  }
}

TEST(Variable, FreezingALeafStopsItsGradient) {
  Variable leaf = random_leaf({3}, 1);
  const Variable other = random_leaf({3}, 2);
  leaf.set_requires_grad(RequiresGrad::no);
  sum(multiply(leaf, other)).backward();
  EXPECT_FALSE(leaf.grad().defined());
  EXPECT_TRUE(other.grad().defined());
}

TEST(Graph, OfAMillionNodesNeedsNoDeepRecursion) {
  LOCKSTEP_CPU_ONLY("the graph is the same on a GPU");
  const Variable x = random_leaf({1}, 1);
  Variable y = x;
  for (int i = 0; i < 100'000; ++i) y = scale(y, 1.0);
  y.backward();
  EXPECT_EQ(x.grad().item(), 1.0);
  y = {};
  for (int i = 0; i < 1'000'000; ++i) y = scale(i == 0 ? x : y, 1.0);
}

TEST(Variable, ALeafIsChangedInPlace) {
  const Variable weight(Tensor::full({2}, 1), RequiresGrad::yes);
  weight.add_(Tensor::full({2}, 4), -0.5);
  EXPECT_EQ(weight.value()[1], -1);
  EXPECT_EQ(Variable(Tensor::full({}, 3)).item(), 3);
  expect_error(ErrorCode::State, "Scale", [&] { scale(weight, 2).add_(Tensor::zeros({2})); });
  expect_error(ErrorCode::State, "until backward()", [&] { weight.add_(weight.grad(), -0.1); });
}

}  // namespace
}  // namespace lockstep::testing
