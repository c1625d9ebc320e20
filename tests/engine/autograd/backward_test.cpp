// The backward pass on one device: what adds up, what is released, what is an error.
#include <gtest/gtest.h>

#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "engine/autograd/variable.h"
#include "tests/support/expect_error.h"
#include "tests/support/expect_gradients_match.h"

namespace lockstep::testing {
namespace {

std::vector<double> doubled(const Tensor& tensor) {
  std::vector<double> values = tensor.to_vector<double>();
  for (double& value : values) value *= 2;
  return values;
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

}  // namespace
}  // namespace lockstep::testing
