// Sequential, and the fusion of Linear with the activation after it.
#include "engine/nn/layers.h"

#include <gtest/gtest.h>

#include "engine/autograd/node.h"
#include "tests/support/devices.h"
#include "tests/support/expect_close.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::expect_close;
using lockstep::testing::kExact;
using lockstep::testing::kFloat64;
using lockstep::testing::random_tensor;
using lockstep::testing::test_device_type;

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

TEST(Sequential, NamesItsChildrenByNumber) {
  const Sequential model(layers());
  std::vector<std::string> names;
  for (const auto& [name, parameter] : model.named_parameters()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"0.weight", "0.bias", "2.weight", "2.bias", "3.weight",
                                             "3.bias"}));
  EXPECT_EQ(model.size(), 6u);
  EXPECT_EQ(model[1].type_name(), "GELU");
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
