// Sequential, and the fusion of Linear with the activation after it.
#include "engine/nn/layers.h"

#include <gtest/gtest.h>

#include "engine/autograd/node.h"
#include "tests/support/devices.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::expect_close;
using lockstep::testing::expect_error;
using lockstep::testing::kFloat64;
using lockstep::testing::random_tensor;

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

// How many nodes lie between a result and its farthest leaf.
std::size_t depth(const Variable& result) {
  std::size_t depth = 0;
  const Node* node = result.node().get();
  while (node) {
    ++depth;
    node = node->edge(0).node.get();
  }
  return depth;
}

TEST(Sequential, NamesItsChildrenByNumber) {
  const Sequential model(layers());
  std::vector<std::string> names;
  for (const auto& [name, parameter] : model.named_parameters()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"0.weight", "0.bias", "2.weight", "2.bias", "3.weight",
                                             "3.bias"}));
  EXPECT_EQ(model.size(), 6u);
  EXPECT_EQ(model[1].type_name(), "GELU");
}

TEST(Sequential, FusesALinearWithTheActivationAfterItAndNothingElse) {
  Sequential model(layers());
  // Linear+GELU, Linear, Linear+Tanh, Sigmoid
  EXPECT_EQ(depth(model(Variable(random_tensor({2, 3}, 1)))), 4u);
}

TEST(Sequential, EqualsItsLayersOneByOneInValuesAndGradients) {
  Sequential model(layers());
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
  expect_close(fused.value(), y.value(), kFloat64);
  expect_close(grads[0], x.grad(), kFloat64);
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    expect_close(grads[i + 1], model.parameters()[i].grad(), kFloat64);
  }
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

TEST(Sequential, TakesTheGradientsOfActivationsBetweenLinearsWithTheSameBits) {
  LOCKSTEP_CPU_ONLY("a GPU's library sums in another order where it does more in one kernel");
  Sequential model(stack());
  const Variable x(random_tensor({4, 3}, 1), RequiresGrad::yes);
  const Tensor direction = random_tensor({4, 2}, 2);
  model(x).backward(direction);
  std::vector<std::vector<double>> grads{x.grad().to_vector<double>()};
  for (const Variable& parameter : model.parameters()) {
    grads.push_back(parameter.grad().to_vector<double>());
  }
  model.zero_grad();
  Variable(x).clear_grad();
  Variable y = x;
  for (std::size_t i = 0; i < model.size(); ++i) y = model[i](y);
  y.backward(direction);
  EXPECT_EQ(grads[0], x.grad().to_vector<double>());
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    EXPECT_EQ(grads[i + 1], model.parameters()[i].grad().to_vector<double>()) << i;
  }
}

TEST(Sequential, TakesTheGradientsOfActivationsBetweenLinears) {
  Sequential model(stack());
  const Variable x(random_tensor({4, 3}, 1), RequiresGrad::yes);
  const Tensor direction = random_tensor({4, 2}, 2);
  model(x).backward(direction);
  std::vector<Tensor> grads{x.grad()};
  for (const Variable& parameter : model.parameters()) grads.push_back(parameter.grad());
  model.zero_grad();
  Variable(x).clear_grad();
  Variable y = x;
  for (std::size_t i = 0; i < model.size(); ++i) y = model[i](y);
  y.backward(direction);
  expect_close(grads[0], x.grad(), kFloat64);
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    expect_close(grads[i + 1], model.parameters()[i].grad(), kFloat64);
  }
}

TEST(Sequential, AGraphThatIsRetainedGivesTheSameGradientsTwice) {
  Sequential model(stack());
  const Variable x(random_tensor({4, 3}, 1), RequiresGrad::yes);
  const Tensor direction = random_tensor({4, 2}, 2);
  const Variable y = model(x);
  y.backward(direction, Graph::retain);
  const auto once = x.grad().to_vector<double>();
  Variable(x).clear_grad();
  y.backward(direction);
  EXPECT_EQ(x.grad().to_vector<double>(), once);
}

TEST(Sequential, AFrozenLayerInAStackStillPassesItsGradientOn) {
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

TEST(Sequential, OfNothingIsTheIdentity) {
  const Variable x(random_tensor({2, 3}, 1));
  EXPECT_TRUE(Sequential({})(x).is_same(x));
}

TEST(Sequential, AShallowCopyRunsItsOwnParameters) {
  Sequential model(layers());
  const auto copy = model.shallow_copy();
  std::vector<Variable> zeros;
  for (const Variable& parameter : model.parameters()) {
    zeros.push_back(Variable(Tensor::zeros(parameter.shape(), DType::float64)));
  }
  copy->set_parameters(zeros);
  const Variable x(random_tensor({8, 3}, 1));
  EXPECT_EQ((*copy)(x).value().to_vector<double>(), (std::vector<double>(16, 0.5)));
  EXPECT_NE(model(x).value().to_vector<double>(), (std::vector<double>(16, 0.5)));
}

TEST(Sequential, HasNoModuleBehindItsLast) {
  const Sequential model(layers());
  expect_error(ErrorCode::Usage, "[Sequential] has 6 modules, found index 6", [&] { model[6]; });
}

}  // namespace
}  // namespace lockstep::nn
