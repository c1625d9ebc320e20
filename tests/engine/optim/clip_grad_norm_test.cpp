// Clipping by the norm of all gradients together.
#include "engine/optim/clip_grad_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/devices.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"

namespace lockstep::optim {
namespace {

using lockstep::testing::expect_close;
using lockstep::testing::expect_error;
using lockstep::testing::kFloat64;
using lockstep::testing::test_device;

Variable with_grad(const std::vector<double>& grad, Device device = test_device()) {
  Variable variable(Tensor::zeros({grad.size()}, DType::float64, device), RequiresGrad::yes);
  variable.set_grad(Tensor::from(grad, {grad.size()}, device));
  return variable;
}

TEST(ClipGradNorm, ScalesAllGradientsByOneFactor) {
  // a.grad, b.grad = tensor([3., 0.]), tensor([-4.]); clip_grad_norm_([a, b], 1.0)
  const std::vector<Variable> parameters{with_grad({3, 0}), with_grad({-4})};
  EXPECT_DOUBLE_EQ(clip_grad_norm(parameters, 1.0), 5.0);
  const double factor = 1.0 / (5.0 + 1e-6);
  expect_close(parameters[0].grad(), {3 * factor, 0}, kFloat64);
  expect_close(parameters[1].grad(), {-4 * factor}, kFloat64);
}

TEST(ClipGradNorm, LeavesSmallGradientsAlone) {
  const std::vector<Variable> parameters{with_grad({3, 0}), with_grad({-4})};
  EXPECT_DOUBLE_EQ(clip_grad_norm(parameters, 10.0), 5.0);
  EXPECT_EQ(parameters[0].grad().to_vector<double>(), (std::vector<double>{3, 0}));
  EXPECT_EQ(clip_grad_norm({}, 1.0), 0.0);
}

TEST(ClipGradNorm, CountsAllDevicesAndSkipsParametersWithoutGradients) {
  const std::vector<Variable> parameters{with_grad({3, 0}),
                                         Variable(Tensor::zeros({2}), RequiresGrad::yes),
                                         with_grad({-4}, test_device(1))};
  EXPECT_DOUBLE_EQ(clip_grad_norm(parameters, 0.5), 5.0);
  EXPECT_NEAR(parameters[2].grad().item(), -0.4, 1e-6);
}

TEST(ClipGradNorm, AnInfiniteNormScalesLikeAnyOther) {
  const double inf = std::numeric_limits<double>::infinity();
  std::vector<Variable> parameters{with_grad({inf, 1})};
  EXPECT_EQ(clip_grad_norm(parameters, 1.0), inf);
  EXPECT_TRUE(std::isnan(parameters[0].grad().to_vector<double>()[0]));
  EXPECT_EQ(parameters[0].grad().to_vector<double>()[1], 0.0);
  parameters[0].set_grad(Tensor::from(std::vector<double>{std::nan(""), 1}, {2}));
  EXPECT_TRUE(std::isnan(clip_grad_norm(parameters, 1.0)));
  EXPECT_TRUE(std::isnan(parameters[0].grad().to_vector<double>()[1]));
}

TEST(ClipGradNorm, RefusesANormThatIsNone) {
  Variable parameter(Tensor::full({2}, 1.0), RequiresGrad::yes);
  parameter.set_grad(Tensor::full({2}, 3.0));
  const std::uint64_t before = parameter.grad().version();
  testing::expect_error(ErrorCode::Usage, "must not be negative, found -1",
                        [&] { clip_grad_norm({parameter}, -1); });
  testing::expect_error(ErrorCode::Usage, "found nan",
                        [&] { clip_grad_norm({parameter}, std::nan("")); });
  EXPECT_EQ(parameter.grad().version(), before);
  clip_grad_norm({parameter}, 1);
  EXPECT_GT(parameter.grad().version(), before);
}

}  // namespace
}  // namespace lockstep::optim
