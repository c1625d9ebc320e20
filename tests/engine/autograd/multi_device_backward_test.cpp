// Backward over graphs whose nodes live on several devices.
#include <gtest/gtest.h>

#include <barrier>

#include "engine/autograd/backward.h"
#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "tests/support/devices.h"
#include "tests/support/expect_error.h"
#include "tests/support/expect_gradients_match.h"

namespace lockstep::testing {
namespace {

Device cpu(int index) {
  return test_device(index);
}

// y = x; its backward runs `action` first.
Variable with_action(const Variable& x, std::function<void()> action) {
  const auto backward = [action](const Node&, const Gradients& grad_outputs) {
    action();
    return Gradients{grad_outputs[0]};
  };
  return record("Action", {x}, x.value(), {}, backward);
}

TEST(MultiDeviceBackward, GradientsCrossDevicesBothWays) {
  const Variable x = random_leaf({3}, 1, cpu(1));
  const Variable y = random_leaf({3}, 2, cpu(2));
  const Variable product = multiply(to(x, cpu(0)), to(y, cpu(0)));
  sum(scale(to(product, cpu(3)), 2.0)).backward();
  EXPECT_EQ(x.grad().device(), cpu(1));
  EXPECT_EQ(y.grad().device(), cpu(2));
  std::vector<double> expected = y.value().to_vector<double>();
  for (double& value : expected) value *= 2;
  expect_close(x.grad(), expected, kExact);
}

TEST(MultiDeviceBackward, DevicesWorkAtTheSameTime) {
  constexpr int kDevices = 3;
  std::barrier all_inside(kDevices);  // passed only if all are inside at once
  const Variable x = random_leaf({3}, 1);
  Variable total = scale(x, 0.0);
  for (int i = 0; i < kDevices; ++i) {
    const Variable there = with_action(to(x, cpu(i + 1)), [&] { all_inside.arrive_and_wait(); });
    total = add(total, to(there, cpu(0)));
  }
  sum(total).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{3, 3, 3}));
}

TEST(MultiDeviceBackward, AnErrorOfAnotherDeviceEndsTheCall) {
  for (int round = 0; round < 200; ++round) {
    const Variable x = random_leaf({2}, 1);
    const auto fails = [] { fail(ErrorCode::Numeric, "there", "this device failed"); };
    const Variable bad = to(with_action(to(x, cpu(1)), fails), cpu(0));
    const Variable good = to(scale(to(x, cpu(2)), 2.0), cpu(0));
    expect_error(ErrorCode::Numeric, "[there] this device failed",
                 [&] { sum(add(bad, good)).backward(); });
  }
}

TEST(MultiDeviceBackward, AThousandGraphsGiveTheSameGradients) {
  const Variable w = random_leaf({4, 4}, 1);
  const Tensor input = random_tensor({3, 4}, 2);
  std::vector<double> first;
  for (int round = 0; round < 1000; ++round) {
    std::vector<Variable> parts;
    for (int i = 0; i < 3; ++i) {
      const Variable x(input.to(cpu(i)));
      parts.push_back(to(linear(x, to(w, cpu(i)), {}, Activation::tanh), cpu(0)));
    }
    // Which branch reaches the leaf first changes, so the last bits may too.
    sum(multiply(parts[0], add(parts[1], parts[2]))).backward();
    ASSERT_EQ(w.grad().shape(), (Shape{4, 4}));
    const std::vector<double> grad = w.grad().to_vector<double>();
    if (first.empty()) first = grad;
    expect_close(grad, first, kFloat64);
    ASSERT_FALSE(HasFailure()) << "round " << round;
    Variable(w).clear_grad();
  }
}

}  // namespace
}  // namespace lockstep::testing
