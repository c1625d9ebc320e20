// Every optimizer's errors, skipping, moving, cost and numbers.
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
using lockstep::testing::kFloat64;
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
}

TEST(Optimizer, LeavesFrozenParametersAlone) {
  Variable frozen(Tensor::full({1}, 1.0));
  Variable trained(Tensor::full({1}, 1.0), RequiresGrad::yes);
  Sgd optimizer({frozen, trained}, {.learning_rate = 0.5});
  sum(multiply(frozen, trained)).backward();
  optimizer.step();
  EXPECT_EQ(frozen.value().item(), 1.0);
  EXPECT_EQ(trained.value().item(), 0.5);
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

// --- numbers from PyTorch 2.15, in double
//
// All follow this program, with the optimizer that the test names:
//   w = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64, requires_grad=True)
//   for step in range(4):
//       w.grad = torch.tensor([0.3, -0.1, 0.7]) * (step + 1) - 0.5
//       optimizer.step()

// Runs the program above and returns w.
template <typename Optimizer, typename Options>
Tensor after_four_steps(const Options& options) {
  const Variable w(Tensor::from(std::vector<double>{1.0, -2.0, 0.5}, {3}), RequiresGrad::yes);
  Optimizer optimizer({w}, options);
  for (int step = 0; step < 4; ++step) {
    std::vector<double> grad{0.3, -0.1, 0.7};
    for (double& value : grad) value = value * (step + 1) - 0.5;
    Variable(w).set_grad(Tensor::from(grad, {3}));
    optimizer.step();
  }
  return w.value();
}

template <typename Optimizer, typename Options>
void expect_values(const Options& options, const std::vector<double>& expected) {
  expect_close(after_four_steps<Optimizer>(options), expected, kFloat64);
}

TEST(OptimizerValues, AreThoseOfPyTorchsSgd) {
  // torch.optim.SGD([w])
  expect_values<Sgd>(SgdOptions{}, {0.999, -1.9970000000000003, 0.495});
  // torch.optim.SGD([w], lr=0.1, weight_decay=0.05)
  expect_values<Sgd>(SgdOptions{0.1, 0, 0, 0.05},
                     {0.8801507481249999, -1.6622927587499998, -0.007928997187500005});
  // torch.optim.SGD([w], lr=0.1, momentum=0.9)
  expect_values<Sgd>(SgdOptions{0.1, 0.9},
                     {0.8956800000000001, -1.3619599999999998, -0.3466799999999999});
  // torch.optim.SGD([w], lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.05)
  expect_values<Sgd>(SgdOptions{0.1, 0.9, 0.3, 0.05},
                     {0.910556743106875, -1.42098207925125, -0.12975695078531244});
  // torch.optim.SGD([w], lr=0.1, momentum=0.9, weight_decay=0.05, nesterov=True)
  expect_values<Sgd>(SgdOptions{0.1, 0.9, 0, 0.05, kNesterov},
                     {0.7454535869273126, -1.017146039755875, -0.7824122500159686});
}

TEST(OptimizerValues, AreThoseOfPyTorchsAdamW) {
  // torch.optim.AdamW([w])
  expect_values<AdamW>(AdamWOptions{},
                       {1.0000775797014598, -1.995909668125038, 0.4963090330439086});
  // torch.optim.AdamW([w], lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)
  expect_values<AdamW>(AdamWOptions{0.05, 0.8, 0.95, 1e-6, 0.1},
                       {0.9745040570018582, -1.760306971430458, 0.30297912053025905});
}

// The second parameter has a gradient in steps 1, 2 and 4 only:
//   a, b = (torch.tensor([x], dtype=torch.float64, requires_grad=True) for x in (1.0, 2.0))
//   for s in range(5):
//       a.grad = torch.tensor([0.5 + s])
//       b.grad = torch.tensor([1.0 - s]) if s in (1, 2, 4) else None
//       optimizer.step()
template <typename Optimizer, typename Options>
std::vector<double> with_a_parameter_that_is_skipped(const Options& options) {
  Variable a(Tensor::full({1}, 1.0, DType::float64), RequiresGrad::yes);
  Variable b(Tensor::full({1}, 2.0, DType::float64), RequiresGrad::yes);
  Optimizer optimizer({a, b}, options);
  for (int s = 0; s < 5; ++s) {
    a.set_grad(Tensor::full({1}, 0.5 + s, DType::float64));
    b.clear_grad();
    if (s == 1 || s == 2 || s == 4) b.set_grad(Tensor::full({1}, 1.0 - s, DType::float64));
    optimizer.step();
  }
  return {a.value().item(), b.value().item()};
}

TEST(OptimizerValues, ASkippedParameterCountsItsOwnSteps) {
  // torch.optim.SGD([a, b], lr=0.1, momentum=0.9, dampening=0.3)
  expect_close(with_a_parameter_that_is_skipped<Sgd>(SgdOptions{0.1, 0.9, 0.3}),
               std::vector<double>{-0.8206000000000002, 2.343}, kFloat64);
  // torch.optim.AdamW([a, b], lr=0.05)
  expect_close(with_a_parameter_that_is_skipped<AdamW>(AdamWOptions{0.05}),
               std::vector<double>{0.762271116761267, 2.073583773017954}, kFloat64);
}

}  // namespace
}  // namespace lockstep::optim
