// Results of the operations against numbers from PyTorch 2.15.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/autograd/ops/ops.h"
#include "engine/core/thread_context.h"
#include "tests/support/devices.h"
#include "tests/support/expect_gradients_match.h"

namespace lockstep::testing {
namespace {

Variable matrix(const std::vector<double>& values, const Shape& shape) {
  return Variable(Tensor::from(values, shape), RequiresGrad::yes);
}

TEST(OpValues, Activations) {
  // torch.relu, F.gelu(x), F.gelu(x, approximate='tanh'), torch.tanh and torch.sigmoid of this x.
  const Variable x = matrix({-2.0, -0.5, 0.25, 1.5}, {4});
  const std::pair<Activation, std::vector<double>> expected[] = {
      {Activation::relu, {0.0, 0.0, 0.25, 1.5}},
      {Activation::gelu_erf,
       {-0.04550026389635842, -0.15426876936299344, 0.14967658142073093, 1.399789198096713}},
      {Activation::gelu_tanh,
       {-0.04540230591222494, -0.15428599017485606, 0.149675350701685, 1.3995715769802328}},
      {Activation::tanh,
       {-0.9640275800758169, -0.46211715726000974, 0.24491866240370913, 0.9051482536448664}},
      {Activation::sigmoid,
       {0.11920292202211755, 0.3775406687981454, 0.5621765008857981, 0.8175744761936437}},
  };
  for (const auto& [activation, values] : expected) {
    expect_close(activate(x, activation).value(), values, kFloat64);
  }
}

TEST(OpValues, CrossEntropyAndItsGradient) {
  // x = torch.tensor([[1., 2., -1.], [.5, 0., 3.]], dtype=torch.float64, requires_grad=True)
  // loss = F.cross_entropy(x, torch.tensor([1, 0])); loss.backward(); loss, x.grad
  const Variable x = matrix({1.0, 2.0, -1.0, 0.5, 0.0, 3.0}, {2, 3});
  const Tensor labels = Tensor::from(std::vector<std::int64_t>{1, 0}, {2});
  const Variable loss = cross_entropy(x, labels);
  loss.backward();
  expect_close(loss.value(), std::vector<double>{1.4864425875687768}, kFloat64);
  expect_close(x.grad(),
               std::vector<double>{0.12974823017120957, -0.1473077436508794, 0.017559513479669865,
                                   -0.46373927715962615, 0.021993240146028922, 0.44174603701359716},
               kFloat64);
  // reduction='sum'
  expect_close(cross_entropy(x, labels, Reduction::sum).value(),
               std::vector<double>{2.9728851751375536}, kFloat64);
}

TEST(OpValues, BatchNormInTrainingMovesTheRunningStatistics) {
  // x = torch.tensor([[1., 2.], [3., -4.], [.5, 1.]], dtype=torch.float64, requires_grad=True)
  // y = F.batch_norm(x, mean := zeros(2), var := ones(2), tensor([2., .5]), tensor([.1, -.1]),
  // True) (y * torch.tensor([[1., 2.], [3., 4.], [5., 6.]])).sum().backward(); y, mean, var, x.grad
  const Variable x = matrix({1.0, 2.0, 3.0, -4.0, 0.5, 1.0}, {3, 2});
  const Tensor mean = Tensor::zeros({2}, DType::float64);
  const Tensor var = Tensor::full({2}, 1.0, DType::float64);
  const Variable y = batch_norm(x, {matrix({2.0, 0.5}, {2}), matrix({0.1, -0.1}, {2}), mean, var});
  y.backward(Tensor::from(std::vector<double>{1, 2, 3, 4, 5, 6}, {3, 2}));
  expect_close(y.value(),
               std::vector<double>{-0.8258161319976312, 0.3445001218797276, 2.877448395992893,
                                   -0.7985001915252863, -1.7516322639952622, 0.15400006964555865},
               kFloat64);
  expect_close(mean, std::vector<double>{0.15000000000000002, -0.03333333333333333}, kFloat64);
  expect_close(var, std::vector<double>{1.075, 1.9333333333333336}, kFloat64);
  expect_close(x.grad(),
               std::vector<double>{-3.967781155561611, -0.337984026083962, 0.7935498827132604,
                                   -0.06759669460401942, 3.1742312728483504, 0.40558072068798134},
               kFloat64);
}

TEST(OpValues, BatchNormInEvaluationUsesTheRunningStatistics) {
  // F.batch_norm(x, tensor([.5, -.5]), tensor([2., 3.]), tensor([2., .5]), tensor([.1, -.1]))
  const Variable x = matrix({1.0, 2.0, 3.0, -4.0, 0.5, 1.0}, {3, 2});
  const Tensor mean = Tensor::from(std::vector<double>{0.5, -0.5}, {2});
  const Tensor var = Tensor::from(std::vector<double>{2.0, 3.0}, {2});
  BatchNormArguments arguments{matrix({2.0, 0.5}, {2}), matrix({0.1, -0.1}, {2}), mean, var};
  arguments.statistics = kernels::BatchNormForward::Statistics::running;
  expect_close(batch_norm(x, arguments).value(),
               std::vector<double>{0.8071050134262236, 0.6216866336769784, 3.6355250671311183,
                                   -1.1103612871477697, 0.09999999999999998, 0.33301198020618705},
               kFloat64);
  EXPECT_EQ(mean.to_vector<double>(), (std::vector<double>{0.5, -0.5}));
}

TEST(OpValues, MseLoss) {
  const Variable x = matrix({1.0, 2.0, 3.0}, {3});
  const Tensor target = Tensor::from(std::vector<double>{0.0, 4.0, 3.0}, {3});
  EXPECT_DOUBLE_EQ(mse_loss(x, target).value().item(), 5.0 / 3.0);
  EXPECT_DOUBLE_EQ(mse_loss(x, target, Reduction::sum).value().item(), 5.0);
}

TEST(OpValues, MeanLossOfNoRowsIsNaN) {
  const Variable logits(Tensor::zeros({0, 3}, DType::float64), RequiresGrad::yes);
  const Tensor labels = Tensor::zeros({0}, DType::int64);
  EXPECT_TRUE(std::isnan(cross_entropy(logits, labels).value().item()));
  const Variable sum = cross_entropy(logits, labels, Reduction::sum);
  EXPECT_EQ(sum.value().item(), 0.0);
  sum.backward();
  EXPECT_EQ(logits.grad().shape(), (Shape{0, 3}));
}

TEST(OpValues, MovingToItsDeviceChangesNothing) {
  const Variable x = matrix({1.0}, {1});
  EXPECT_TRUE(to(x, test_device()).is_same(x));
}

}  // namespace
}  // namespace lockstep::testing
