// The backward pass on one device: what adds up, what is released, what is an error.
#include <gtest/gtest.h>

#include <thread>

#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "engine/autograd/variable.h"
#include "tests/support/devices.h"
#include "tests/support/expect_error.h"
#include "tests/support/expect_gradients_match.h"

namespace lockstep::testing {
namespace {

std::vector<double> doubled(const Tensor& tensor) {
  std::vector<double> values = tensor.to_vector<double>();
  for (double& value : values) value *= 2;
  return values;
}

TEST(Backward, OfALeafIsTheGivenGradient) {
  const Variable x = random_leaf({3}, 1);
  const Tensor grad = random_tensor({3}, 2);
  x.backward(grad);
  expect_close(x.grad(), grad, kExact);
  EXPECT_FALSE(x.grad().shares_memory_with(grad));
}

TEST(Backward, MoreElementsNeedAGradient) {
  const Variable x = random_leaf({2, 3}, 1);
  expect_error(ErrorCode::Shape, "a gradient is needed for shape [2, 3]",
               [&] { scale(x, 2.0).backward(); });
  expect_error(ErrorCode::Shape, "shapes [2, 3] and [3, 2] differ", [&] {
    scale(x, 2.0).backward(random_tensor({3, 2}, 1));
  });
  expect_error(ErrorCode::DType, "found float64 and float32", [&] {
    scale(x, 2.0).backward(random_tensor({2, 3}, 1, DType::float32));
  });
}

TEST(Backward, WithoutAnythingToDifferentiateIsAnError) {
  const Variable constant(random_tensor({}, 1));
  expect_error(ErrorCode::State, "does not depend on anything that requires a gradient",
               [&] { constant.backward(); });
  const Variable leaf = random_leaf({}, 1);
  expect_error(ErrorCode::State, "does not depend on anything", [&] {
    NoGradScope no_grad;
    scale(leaf, 2.0).backward();
  });
}

TEST(Backward, ThroughAReleasedGraphIsAnError) {
  const Variable x = random_leaf({3}, 1);
  const Variable h = tanh(x);
  const Variable y = sum(h);
  y.backward();
  const Tensor before = x.grad().clone();
  expect_error(ErrorCode::State, "released by an earlier backward (at Sum)", [&] { y.backward(); });
  expect_error(ErrorCode::State, "(at Tanh); pass Graph::retain", [&] { mean(h).backward(); });
  expect_close(x.grad(), before, kExact);
}

TEST(Backward, RetainAllowsASecondPass) {
  const Variable x = random_leaf({3}, 1);
  const Variable y = sum(multiply(tanh(x), x));
  y.backward({}, Graph::retain);
  const std::vector<double> twice = doubled(x.grad());
  y.backward();
  expect_close(x.grad(), twice, kExact);
  expect_error(ErrorCode::State, "released", [&] { y.backward(); });
}

TEST(Backward, GradientsAddUpUntilCleared) {
  Variable x = random_leaf({3}, 1);
  sum(x).backward();
  sum(scale(x, 2.0)).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{3, 3, 3}));
  x.clear_grad();
  EXPECT_FALSE(x.grad().defined());
  sum(x).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{1, 1, 1}));
}

TEST(Backward, DoubleUseAddsUp) {
  const Variable x = random_leaf({3}, 1);
  const Variable h = scale(x, 2.0);
  sum(add(add(h, h), add(h, x))).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{7, 7, 7}));
}

TEST(Backward, AccumulationNeverWritesIntoMemoryOfSomebodyElse) {
  const Variable x = random_leaf({2}, 1);
  const Variable z = random_leaf({2}, 2);
  const Tensor grad = Tensor::full({2}, 1.0, DType::float64);
  add(x, z).backward(grad);  // both gradients are the tensor that came in
  add(x, x).backward(grad);
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{3, 3}));
  EXPECT_EQ(z.grad().to_vector<double>(), (std::vector<double>{1, 1}));
  EXPECT_EQ(grad.to_vector<double>(), (std::vector<double>{1, 1}));
}

TEST(Backward, AReshapedLeafKeepsItsShape) {
  const Variable x = random_leaf({2, 3}, 1);
  sum(add(reshape(x, {6}), reshape(x, {6}))).backward();
  EXPECT_EQ(x.grad().shape(), (Shape{2, 3}));
  EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(6, 2.0));
}

TEST(Backward, AnErrorInANodeReachesTheCaller) {
  const Variable x = random_leaf({2}, 1);
  const Variable y =
      record("Throwing", {tanh(x)}, x.value(), {}, [](const Node&, const Gradients&) -> Gradients {
        fail(ErrorCode::Numeric, "throwing", "as it was asked to");
      });
  expect_error(ErrorCode::Numeric, "[throwing] as it was asked to", [&] { sum(y).backward(); });
  EXPECT_FALSE(x.grad().defined());
  sum(x).backward();  // the next pass is as good as new
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{1, 1}));
}

TEST(Backward, RecordsNothingWhileItRuns) {
  bool was_enabled = true;
  Variable x = random_leaf({2}, 1);
  x.on_grad_ready([&](const Variable&) { was_enabled = grad_enabled(); });
  sum(x).backward();
  EXPECT_FALSE(was_enabled);
  EXPECT_TRUE(grad_enabled());
}

TEST(Backward, FromEightThreadsOnGraphsOfTheirOwn) {
  constexpr int kThreads = 8;
  std::vector<std::vector<double>> results(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&results, t] {
      for (int round = 0; round < 50; ++round) {
        const Variable x = random_leaf({3}, 1);
        // Half of the threads start on cpu:1; all use both devices.
        const Device first = test_device(t % 2);
        const Device second = test_device(1 - t % 2);
        const Variable h = to(scale(to(x, first), 2.0), second);
        sum(multiply(h, scale(h, 1.0 + t))).backward();
        results[static_cast<std::size_t>(t)] = x.grad().to_vector<double>();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<double> x = random_leaf({3}, 1).value().to_vector<double>();
  for (int t = 0; t < kThreads; ++t) {
    std::vector<double> expected;
    for (const double value : x) expected.push_back(8 * (1.0 + t) * value);
    expect_close(results[static_cast<std::size_t>(t)], expected, kFloat64);
  }
}

}  // namespace
}  // namespace lockstep::testing
