// Leaf hooks: when they run, how often, in which order, and what they may do.
#include <gtest/gtest.h>

#include "engine/autograd/backward.h"
#include "engine/autograd/ops/ops.h"
#include "tests/support/expect_error.h"
#include "tests/support/expect_gradients_match.h"

namespace lockstep::testing {
namespace {

using Values = std::vector<double>;

TEST(GradHook, SeesTheWholeGradientOfALeaf) {
  Variable x = random_leaf({2}, 1);
  std::vector<Values> seen;
  x.on_grad_ready([&](const Variable& leaf) {
    EXPECT_TRUE(leaf.is_same(x));
    seen.push_back(leaf.grad().to_vector<double>());
  });
  sum(add(add(x, scale(x, 2.0)), add(x, x))).backward();
  EXPECT_EQ(seen, (std::vector<Values>{{5, 5}}));
}

TEST(GradHook, SeveralRunInOrderUntilRemoved) {
  Variable x = random_leaf({}, 1);
  std::vector<int> order;
  x.on_grad_ready([&](const Variable&) { order.push_back(1); });
  const std::uint64_t second = x.on_grad_ready([&](const Variable&) { order.push_back(2); });
  x.on_grad_ready([&](const Variable&) { order.push_back(3); });
  scale(x, 2.0).backward();
  x.remove_grad_hook(second);
  scale(x, 2.0).backward();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 1, 3}));
}

TEST(OnBackwardEnd, RunsOnceWhenAllGradientsAreInPlace) {
  Variable first = random_leaf({2}, 1);
  Variable second = random_leaf({2}, 2);
  int calls = 0;
  second.on_grad_ready([&](const Variable&) {
    on_backward_end([&] {
      ++calls;
      EXPECT_TRUE(first.grad().defined());
    });
  });
  sum(add(scale(first, 2.0), second)).backward();
  EXPECT_EQ(calls, 1);
  sum(first).backward();
  EXPECT_EQ(calls, 1);
}

TEST(OnBackwardEnd, DoesNotRunAfterAnError) {
  Variable x = random_leaf({}, 1);
  bool ended = false;
  x.on_grad_ready([&](const Variable&) {
    on_backward_end([&] { ended = true; });
    fail(ErrorCode::Comm, "hook", "cannot send");
  });
  EXPECT_THROW(scale(x, 2.0).backward(), Error);
  EXPECT_FALSE(ended);
}

TEST(OnBackwardEnd, OutsideABackwardIsAnError) {
  expect_error(ErrorCode::State, "no backward pass is running here",
               [] { on_backward_end([] {}); });
}

}  // namespace
}  // namespace lockstep::testing
