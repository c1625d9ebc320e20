// Gradient slots: memory that the user chose, such as a place in a bucket.
#include <gtest/gtest.h>

#include "engine/autograd/ops/ops.h"
#include "tests/support/devices.h"
#include "tests/support/expect_error.h"
#include "tests/support/expect_gradients_match.h"

namespace lockstep::testing {
namespace {

class GradSlot : public ::testing::Test {
 protected:
  // weight [2, 3] and bias [2] side by side in one bucket, between elements that stay 7.
  Tensor bucket_ = Tensor::full({10}, 7.0, DType::float64);
  Variable weight_ = random_leaf({2, 3}, 1);
  Variable bias_ = random_leaf({2}, 2);
  Variable x_{random_tensor({4, 3}, 3)};

  void SetUp() override {
    weight_.set_grad_slot(bucket_.slice(1, {2, 3}));
    bias_.set_grad_slot(bucket_.slice(7, {2}));
  }
  // The gradients of a pass without slots.
  std::pair<Tensor, Tensor> reference() const {
    const Variable weight(weight_.value(), RequiresGrad::yes);
    const Variable bias(bias_.value(), RequiresGrad::yes);
    sum(linear(x_, weight, bias, Activation::tanh)).backward();
    return {weight.grad(), bias.grad()};
  }
};

TEST_F(GradSlot, ReceivesTheGradientInPlace) {
  sum(linear(x_, weight_, bias_, Activation::tanh)).backward();
  EXPECT_TRUE(weight_.grad().shares_memory_with(weight_.grad_slot()));
  EXPECT_TRUE(bias_.grad().shares_memory_with(bucket_.slice(7, {2})));
  const auto [weight_grad, bias_grad] = reference();
  expect_close(bucket_.slice(1, {2, 3}), weight_grad, kFloat64);
  expect_close(bucket_.slice(7, {2}), bias_grad, kFloat64);
  EXPECT_EQ(bucket_.to_vector<double>().front(), 7.0);
  EXPECT_EQ(bucket_.to_vector<double>().back(), 7.0);
}

TEST_F(GradSlot, ReceivesAGradientThatWasMadeElsewhere) {
  const Tensor grad = random_tensor({2}, 4);
  add(bias_, bias_.detach()).backward(grad);  // Add passes its gradient on as it is
  EXPECT_TRUE(bias_.grad().shares_memory_with(bias_.grad_slot()));
  expect_close(bucket_.slice(7, {2}), grad, kExact);
}

TEST_F(GradSlot, OfTheSameVariableTwiceInOneOperation) {
  multiply(bias_, bias_).backward(Tensor::full({2}, 1.0, DType::float64));
  std::vector<double> expected = bias_.value().to_vector<double>();
  for (double& value : expected) value *= 2;
  expect_close(bucket_.slice(7, {2}), expected, kExact);
}

TEST_F(GradSlot, IsAddedToUntilTheGradientIsCleared) {
  const auto expect_pass_leaves = [this](double expected) {
    sum(linear(x_, weight_, bias_)).backward();
    EXPECT_TRUE(bias_.grad().shares_memory_with(bias_.grad_slot()));
    EXPECT_EQ(bias_.grad().to_vector<double>(), std::vector<double>(2, expected));
  };
  expect_pass_leaves(4);
  expect_pass_leaves(8);
  bias_.clear_grad();
  expect_pass_leaves(4);
}

TEST_F(GradSlot, IsLeftAloneWhileAnotherGradientIsThere) {
  bias_.set_grad(Tensor::full({2}, 1.0, DType::float64));
  sum(linear(x_, weight_, bias_)).backward();
  EXPECT_FALSE(bias_.grad().shares_memory_with(bias_.grad_slot()));
  EXPECT_EQ(bias_.grad().to_vector<double>(), (std::vector<double>{5, 5}));
  EXPECT_EQ(bucket_.slice(7, {2}).to_vector<double>(), (std::vector<double>{7, 7}));
}

TEST_F(GradSlot, IsUsedAgainAfterAPassThatFailed) {
  Variable h = linear(x_, weight_, bias_);
  const std::uint64_t hook =
      bias_.on_grad_ready([](const Variable&) { fail(ErrorCode::Comm, "hook", "cannot send"); });
  EXPECT_THROW(sum(h).backward(), Error);
  bias_.remove_grad_hook(hook);
  weight_.clear_grad();
  bias_.clear_grad();
  sum(linear(x_, weight_, bias_, Activation::tanh)).backward();
  const auto [weight_grad, bias_grad] = reference();
  EXPECT_TRUE(weight_.grad().shares_memory_with(weight_.grad_slot()));
  expect_close(bucket_.slice(1, {2, 3}), weight_grad, kFloat64);
  expect_close(bucket_.slice(7, {2}), bias_grad, kFloat64);
}

TEST_F(GradSlot, MustFitTheValue) {
  expect_error(ErrorCode::Shape, "[set_grad_slot] shapes [2] and [3] differ",
               [&] { bias_.set_grad_slot(bucket_.slice(0, {3})); });
  expect_error(ErrorCode::DType, "found float64 and float32",
               [&] { bias_.set_grad_slot(Tensor::zeros({2})); });
  expect_error(ErrorCode::Device, "found cpu:0 and cpu:1",
               [&] { bias_.set_grad_slot(Tensor::zeros({2}, DType::float64, test_device(1))); });
}

}  // namespace
}  // namespace lockstep::testing
