// Every differentiable operation against central differences in double.
#include <gtest/gtest.h>

#include "engine/autograd/gradient_check.h"
#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "tests/support/devices.h"
#include "tests/support/expect_error.h"
#include "tests/support/expect_gradients_match.h"

namespace lockstep::testing {
namespace {

using kernels::Statistics;
using Variables = std::vector<Variable>;

// Values whose distance from 0, where ReLU has its kink, is far more than a difference step.
Variable leaf_away_from_zero(const Shape& shape, std::uint64_t seed) {
  std::vector<double> values = random_tensor(shape, seed).to_vector<double>();
  for (double& value : values) value += value < 0 ? -0.1 : 0.1;
  return Variable(Tensor::from(values, shape), RequiresGrad::yes);
}

TEST(OpGradients, OfEveryOperation) {
  const Tensor running_mean = random_tensor({4}, 4);
  const Tensor running_var = Tensor::from(std::vector<double>{0.5, 1.0, 2.0, 3.0}, {4});
  const Variables inputs{random_leaf({3, 4}, 1), random_leaf({3, 4}, 2), random_leaf({4}, 3),
                         random_leaf({4}, 5), random_leaf({3, 4}, 6, test_device(1))};
  const std::vector<std::pair<const char*, Operation>> operations{
      {"add", [](const Variables& in) { return add(in[0], in[1]); }},
      {"add to itself", [](const Variables& in) { return add(in[0], in[0]); }},
      {"subtract", [](const Variables& in) { return subtract(in[0], in[1]); }},
      {"multiply", [](const Variables& in) { return multiply(in[0], in[1]); }},
      {"multiply by itself", [](const Variables& in) { return multiply(in[0], in[0]); }},
      {"scale", [](const Variables& in) { return scale(in[0], -2.5); }},
      {"sum", [](const Variables& in) { return sum(in[0]); }},
      {"mean", [](const Variables& in) { return mean(in[0]); }},
      {"reshape",
       [](const Variables& in) {
         return reshape(in[0], {2, 6});
       }},
      {"to", [](const Variables& in) { return multiply(to(in[0], test_device(1)), in[4]); }},
      {"dropout", [](const Variables& in) { return dropout(in[0], 0.4, 7, 3); }},
      {"batch_norm",
       [](const Variables& in) {
         return batch_norm(in[0], {in[2], in[3], {}, {}, 0.1, 1e-5, Statistics::batch});
       }},
      {"batch_norm without weight and bias",
       [](const Variables& in) {
         return batch_norm(in[0], {{}, {}, {}, {}, 0.1, 1e-5, Statistics::batch});
       }},
      {"batch_norm with running statistics",
       [&](const Variables& in) {
         return batch_norm(
             in[0], {in[2], in[3], running_mean, running_var, 0.1, 1e-5, Statistics::running});
       }},
      {"a graph that forks and joins",
       [](const Variables& in) {
         const Variable h = tanh(matmul(in[0], in[1], Transpose::no, Transpose::yes));
         return add(multiply(h, sigmoid(h)), scale(h, 3.0));
       }},
  };
  for (const auto& [name, operation] : operations) {
    SCOPED_TRACE(name);
    expect_gradients_match(operation, inputs);
  }
}

TEST(OpGradients, MatmulWithEveryTranspose) {
  for (const Transpose a : {Transpose::no, Transpose::yes}) {
    for (const Transpose b : {Transpose::no, Transpose::yes}) {
      const Shape shape_a = a == Transpose::no ? Shape{3, 5} : Shape{5, 3};
      const Shape shape_b = b == Transpose::no ? Shape{5, 4} : Shape{4, 5};
      expect_gradients_match([a, b](const Variables& in) { return matmul(in[0], in[1], a, b); },
                             {random_leaf(shape_a, 1), random_leaf(shape_b, 2)});
    }
  }
}

TEST(OpGradients, CrossEntropy) {
  const Tensor labels = Tensor::from(std::vector<std::int64_t>{2, 0, 1, 2, 2}, {5});
  for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
    expect_gradients_match(
        [&](const Variables& in) { return cross_entropy(in[0], labels, reduction); },
        {random_leaf({5, 3}, 1)});
  }
}

TEST(OpGradients, MseLoss) {
  const Tensor target = random_tensor({5, 3}, 2);
  for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
    expect_gradients_match([&](const Variables& in) { return mse_loss(in[0], target, reduction); },
                           {random_leaf({5, 3}, 1)});
  }
}

TEST(OpGradients, ActivationsAloneAndFusedIntoLinear) {
  for (const Activation activation :
       {Activation::none, Activation::relu, Activation::gelu_erf, Activation::gelu_tanh,
        Activation::tanh, Activation::sigmoid}) {
    SCOPED_TRACE(static_cast<int>(activation));
    expect_gradients_match(
        [activation](const Variables& in) { return activate(in[0], activation); },
        {leaf_away_from_zero({4, 5}, 1)});
    const Variables layer{random_leaf({4, 5}, 1), random_leaf({3, 5}, 2), random_leaf({3}, 3)};
    expect_gradients_match(
        [activation](const Variables& in) { return linear(in[0], in[1], in[2], activation); },
        layer);
    expect_gradients_match(
        [activation](const Variables& in) { return linear(in[0], in[1], {}, activation); },
        {layer[0], layer[1]});
  }
}

// --- the checker itself: it has to see a gradient that is wrong

// y = 2 x, whose backward says 2.001.
Variable slightly_wrong(const Variable& x) {
  const auto backward = [](const Node& node, const Gradients& grad_outputs) {
    const Tensor grad = node.gradient_buffer(0);
    grad.backend().scale(grad.stream(), {grad_outputs[0].view(), 2.001, grad.view()});
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
