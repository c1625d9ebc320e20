// Sequential, and the fusion of Linear with the activation after it.
#include "engine/nn/sequential.h"

#include <gtest/gtest.h>

#include "engine/autograd/node.h"
#include "engine/nn/activation.h"
#include "engine/nn/linear.h"
#include "tests/support/expect_close.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::expect_close;
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

}  // namespace
}  // namespace lockstep::nn
