// The checker itself: it has to see a gradient that is wrong.
#include <gtest/gtest.h>

#include "engine/autograd/gradient_check.h"
#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "tests/support/expect_error.h"
#include "tests/support/expect_gradients_match.h"

namespace lockstep::testing {
namespace {

// y = 2 x, whose backward says 2.001.
Variable slightly_wrong(const Variable& x) {
  const auto backward = [](const Node& node, const Gradients& grad_outputs) {
    const Tensor grad = node.gradient_buffer(0);
    grad.backend().scale(grad.stream(), grad_outputs[0].view(), 2.001, grad.view());
    return Gradients{grad};
  };
  return record("SlightlyWrong", {x}, scale(x, 2.0).value(), {}, backward);
}

TEST(GradientCheck, SeesAGradientThatIsSlightlyOff) {
  const auto result =
      check_gradients([](const auto& in) { return slightly_wrong(in[0]); }, {random_leaf({4}, 1)});
  EXPECT_NEAR(result.at(0), 0.0005, 1e-5);
}

TEST(GradientCheck, SeesAGradientThatIsMissing) {
  const auto result = check_gradients(
      [](const auto& in) { return add(scale(in[0].detach(), 2.0), scale(in[0], 0.0)); },
      {random_leaf({4}, 1)});
  EXPECT_DOUBLE_EQ(result.at(0), 1.0);
}

TEST(GradientCheck, LeavesInputsAsTheyWere) {
  Variable x = random_leaf({4}, 1);
  const std::vector<double> before = x.value().to_vector<double>();
  check_gradients([](const auto& in) { return tanh(in[0]); }, {x});
  EXPECT_EQ(x.value().to_vector<double>(), before);
  EXPECT_FALSE(x.grad().defined());
}

}  // namespace
}  // namespace lockstep::testing
