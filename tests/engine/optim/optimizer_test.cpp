// Every optimizer's errors, skipping, moving and cost.
#include "engine/optim/optimizer.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>

#include "engine/autograd/ops/ops.h"
#include "tests/support/devices.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"

namespace lockstep::optim {
namespace {

using lockstep::testing::expect_close;
using lockstep::testing::expect_error;
using lockstep::testing::kExact;
using lockstep::testing::random_tensor;
using lockstep::testing::test_device;

constexpr auto kNesterov = SgdOptions::Kind::nesterov;
const Device kOther = test_device(1);

Variable parameter(double value, DType dtype = DType::float64, Device device = test_device()) {
  return Variable(Tensor::full({2}, value, dtype, device), RequiresGrad::yes);
}

void set_grad(Variable& variable, double value) {
  variable.set_grad(Tensor::full({2}, value, variable.dtype(), variable.device()));
}

TEST(OptimizerErrors, ArgumentsAreCheckedInPyTorchsWords) {
  const std::vector<Variable> one{parameter(1)};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto sgd = [&](const std::string& words, const SgdOptions& options) {
    expect_error(ErrorCode::Usage, "[SGD] " + words, [&] { Sgd(one, options); });
  };
  sgd("Invalid learning rate: -0.1", {-0.1});
  sgd("Invalid learning rate: nan", {nan});
  sgd("Invalid momentum value: -0.5", {0.1, -0.5});
  sgd("Invalid weight_decay value: -1", {0.1, 0, 0, -1});
  sgd("Nesterov momentum requires a momentum and zero dampening", {0.1, 0, 0, 0, kNesterov});
  sgd("Nesterov momentum requires a momentum and zero dampening", {0.1, 0.9, 0.1, 0, kNesterov});
  const auto adamw = [&](const std::string& words, const AdamWOptions& options) {
    expect_error(ErrorCode::Usage, "[AdamW] " + words, [&] { AdamW(one, options); });
  };
  adamw("Invalid learning rate: -0.1", {-0.1});
  adamw("Invalid beta parameter at index 0: 1", {0.1, 1.0});
  adamw("Invalid beta parameter at index 1: -0.5", {0.1, 0.9, -0.5});
  adamw("Invalid epsilon value: -1", {0.1, 0.9, 0.99, -1});
  adamw("Invalid weight_decay value: -1", {0.1, 0.9, 0.99, 1e-8, -1});
}

TEST(OptimizerErrors, ParametersAreCheckedToo) {
  expect_error(ErrorCode::Usage, "optimizer got an empty parameter list", [] { Sgd({}); });
  const Variable twice = parameter(1);
  expect_error(ErrorCode::Usage, "some parameters appear more than once", [&] {
    Sgd({twice, parameter(2), twice});
  });
  expect_error(ErrorCode::Usage, "can't optimize a non-leaf Tensor",
               [&] { Sgd({scale(twice, 2.0)}); });
  expect_error(ErrorCode::Usage, "does not require a gradient",
               [] { Sgd({Variable(Tensor::zeros({1}))}); });
}

// Source: torch.optim.AdamW([{"params": [matrix], "weight_decay": 0.5}, {"params": [vector]}]).
TEST(ParameterGroups, HaveTheirOwnWeightDecay) {
  Variable vector(Tensor::full({2}, 1.0, DType::float64), RequiresGrad::yes);
  Variable matrix(Tensor::full({1, 2}, 1.0, DType::float64), RequiresGrad::yes);
  const std::vector<ParameterGroup> groups = decay_groups({vector, matrix}, 0.5);
  AdamW optimizer(groups, {.learning_rate = 0.1});
  EXPECT_TRUE(optimizer.parameters()[0].is_same(matrix));
  for (int step = 0; step < 2; ++step) {
    vector.set_grad(Tensor::zeros({2}, DType::float64));
    matrix.set_grad(Tensor::zeros({1, 2}, DType::float64));
    optimizer.step();
  }
  EXPECT_EQ(vector.value().to_vector<double>(), (std::vector<double>{1, 1}));
  EXPECT_EQ(matrix.value().to_vector<double>()[1], 0.95 * 0.95);
  EXPECT_EQ(optimizer.state(0).num_steps, 2u);
  expect_error(ErrorCode::Usage, "[AdamW] Invalid weight_decay value: -1", [&] {
    AdamW(decay_groups({vector, matrix}, -1));
  });
}

TEST(Optimizer, TakesANewLearningRate) {
  Variable w = parameter(1);
  const Tensor tensor = w.value();
  Sgd sgd({w}, {0.5});
  expect_error(ErrorCode::Usage, "Invalid learning rate: -1", [&] { sgd.set_learning_rate(-1); });
  set_grad(w, 1);
  sgd.step();
  sgd.set_learning_rate(0.25);
  sgd.step();
  EXPECT_EQ(tensor.to_vector<double>(), (std::vector<double>{0.25, 0.25}));
}

TEST(Optimizer, TakesParametersOfSeveralDevicesAndTypes) {
  std::vector<Variable> parameters{parameter(1), parameter(2, DType::float32),
                                   parameter(3, DType::float64, kOther),
                                   parameter(4, DType::float32, kOther)};
  Sgd sgd(parameters, {0.5, 0.5});
  for (int step = 0; step < 2; ++step) {
    for (Variable& variable : parameters) set_grad(variable, 1);
    sgd.step();
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    // v = 1 then 1.5; w = w - 0.5 (1 + 1.5)
    const double expected = static_cast<double>(i) + 1 - 1.25;
    EXPECT_EQ(parameters[i].value().to_vector<double>(), (std::vector<double>{expected, expected}));
  }
}

// A run of steps, with something done in the middle of it.
std::vector<double> adamw_with(const std::function<void(Variable&)>& in_between) {
  Variable w(random_tensor({3}, 1), RequiresGrad::yes);
  AdamW adamw({w}, {0.1});
  for (std::uint64_t step = 0; step < 6; ++step) {
    w.set_grad(random_tensor({3}, 10 + step).to(w.dtype()).to(w.device()));
    adamw.step();
    if (step == 2) in_between(w);
  }
  return w.value().to_vector<double>();
}

TEST(Optimizer, StateFollowsAParameter) {
  const std::vector<double> expected = adamw_with([](Variable&) {});
  EXPECT_EQ(adamw_with([](Variable& w) { w.set_value(w.value().to(kOther)); }), expected);
  expect_close(adamw_with([](Variable& w) { w.set_value(w.value().to(DType::float32)); }), expected,
               {1e-5, 1e-6});
}

TEST(Optimizer, AGradientOnAnotherDeviceIsRefused) {
  Variable w = parameter(1);
  set_grad(w, 1);
  w.set_value(w.value().to(kOther));
  Sgd sgd({w});
  expect_error(ErrorCode::Device, "[SGD] all tensors must be on one device, found cpu:1 and cpu:0",
               [&] { sgd.step(); });
}

TEST(Optimizer, AStepBeforeBackwardIsAnError) {
  Variable w = parameter(2);
  Variable x = parameter(3);
  Sgd sgd({w});
  AdamW adamw({x});
  const Variable y = sum(multiply(w, x));
  set_grad(w, 1);
  sgd.step();
  expect_error(ErrorCode::State,
               "[backward] Multiply saved Tensor[2] float64 on cpu:0 in version 1",
               [&] { y.backward(); });
  const Variable z = sum(multiply(w, x));
  set_grad(x, 1);
  adamw.step();
  expect_error(ErrorCode::State, "was changed in place", [&] { z.backward(); });
  sgd.zero_grad();
  adamw.zero_grad();
  sum(multiply(w, x)).backward();
  sgd.step();
  const Variable after = sum(multiply(w, x));
  adamw.count_replayed_step();  // a graph's launch has changed x
  expect_error(ErrorCode::State, "was changed in place", [&] { after.backward(); });
}

TEST(Optimizer, GoesOnFromALoadedState) {
  for (const bool use_adamw : {false, true}) {
    const auto make = [&](const Variable& w) -> std::unique_ptr<Optimizer> {
      if (use_adamw) return std::make_unique<AdamW>(std::vector{w});
      return std::make_unique<Sgd>(std::vector{w}, SgdOptions{0.1, 0.9});
    };
    Variable w = parameter(2);
    const auto optimizer = make(w);
    EXPECT_TRUE(optimizer->state(0).tensors.empty());
    for (const double gradient : {0.3, -0.5}) {
      set_grad(w, gradient);
      optimizer->step();
    }
    Variable copy(w.value().clone(), RequiresGrad::yes);
    const auto fresh = make(copy);
    fresh->load_state(0, optimizer->state(0));
    EXPECT_EQ(fresh->state(0).num_steps, 2u);
    for (auto& [variable, its] : {std::pair(&w, &optimizer), std::pair(&copy, &fresh)}) {
      set_grad(*variable, 0.7);
      (*its)->step();
    }
    expect_close(copy.value(), w.value(), kExact);
    expect_close(fresh->state(0).tensors[0], optimizer->state(0).tensors[0], kExact);
    expect_error(ErrorCode::Shape, "tensors for a parameter, the state to load has 3", [&] {
      fresh->load_state(0, {1, std::vector<Tensor>(3)});
    });
  }
}

}  // namespace
}  // namespace lockstep::optim
