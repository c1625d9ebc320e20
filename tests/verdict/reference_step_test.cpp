// The rules that an engine's step is compared with: how far gradients may be apart, and what a step
// and a schedule make of their numbers.
#include "tools/verdict/reference_step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/core/rng.h"
#include "tools/training/model.h"

namespace lockstep::tools {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class OneParameter final : public nn::ModuleOf<OneParameter> {
 public:
  explicit OneParameter(const Tensor& value) { register_parameter("w", value); }
  Variable forward(const Variable& x) override { return x; }
  std::string type_name() const override { return "OneParameter"; }
};

std::vector<double> few(const Tensor& tensor) {
  const std::vector<double> all = tensor.to_vector<double>();
  return {all[3], all[400], all[999], all[1000]};
}

KeptTensors elements(const TrainingTask& task, const optim::Optimizer& optimizer) {
  KeptTensors kept{{"w", few(optimizer.parameters()[0].value())}};
  for (const Tensor& tensor : optimizer.state(0).tensors) {
    kept.emplace_back("w" + state_suffix(task.optimizer, kept.size() - 1), few(tensor));
  }
  return kept;
}

TEST(GradientErrors, AreRelativeToWhatWasAddedUp) {
  const ReferenceGradient reference{{{3, 4}}, {10}, 0};  // two pieces of norm 5 that agree
  EXPECT_EQ(gradient_errors({{3, 4}}, reference), (std::vector<double>{0}));
  EXPECT_DOUBLE_EQ(gradient_errors({{3, 4.1}}, reference)[0], (4.1 - 4) / 10);
}

TEST(GradientErrors, OfAParameterThatNothingReachesAreZeroOrInfinite) {
  const ReferenceGradient reference{{{0, 0}}, {0}, 0};
  EXPECT_EQ(gradient_errors({{0, 0}}, reference)[0], 0);
  EXPECT_EQ(gradient_errors({{0, 1e-30}}, reference)[0], kInfinity);
}

TEST(GradientErrors, ShowAMissingGradientAndANan) {
  const ReferenceGradient reference{{{1}, {1}}, {2, 2}, 0};
  const std::vector<double> errors = gradient_errors({{}, {kNan}}, reference);
  EXPECT_EQ(errors[0], kInfinity);
  EXPECT_TRUE(std::isnan(errors[1]));
}

TEST(GradientLimit, IsTightOnTheCpuAndStatedForGpus) {
  using kernels::MatmulPrecision;
  EXPECT_EQ(gradient_limit(DType::float32, DeviceType::cpu, MatmulPrecision::highest), 1e-5);
  EXPECT_EQ(gradient_limit(DType::float64, DeviceType::cpu, MatmulPrecision::highest), 1e-12);
  EXPECT_EQ(gradient_limit(DType::float32, DeviceType::cuda, MatmulPrecision::highest), 1e-3);
  EXPECT_EQ(gradient_limit(DType::float32, DeviceType::cuda, MatmulPrecision::medium), 3e-2);
  EXPECT_EQ(gradient_limit(DType::float32, DeviceType::cpu, MatmulPrecision::bf16), 3e-2);
  EXPECT_EQ(gradient_limit(DType::float64, DeviceType::cpu, MatmulPrecision::bf16), 1e-12);
}

// Elements of a run's tensors become what the whole tensors became.
TEST(Updated, MakesTheRunsBitsOfAFewElements) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    TrainingTask task;
    task.optimizer.kind = optimizer[0] == 's' ? OptimizerKind::sgd : OptimizerKind::adamw;
    task.optimizer.weight_decay = 0.01;
    Rng rng(0);
    std::vector<double> values(1001);
    for (double& value : values) value = rng.normal();
    const Tensor weight = Tensor::from(values, {values.size()}, Device{}).to(DType::float32);
    RankModel model;
    model.inner = std::make_shared<OneParameter>(weight);
    const auto run = make_optimizer(task, model);
    KeptTensors kept = elements(task, *run);
    for (std::size_t step = 0; step < 5; ++step) {
      const Tensor gradient = weight.clone();
      model.inner->parameters()[0].set_grad(gradient);
      run->step();
      kept =
          updated(task, Device{}, step, run->learning_rate(), {0.01}, kept, {{"w", few(gradient)}});
      EXPECT_EQ(kept, elements(task, *run)) << optimizer << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace lockstep::tools
