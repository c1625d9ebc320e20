// A training step as one graph: the weights are, bit for bit, those of steps that are issued one
// kernel after the other.
#include <gtest/gtest.h>

#include <functional>

#include "engine/autograd/ops/ops.h"
#include "engine/nn/mlp.h"
#include "engine/optim/adamw.h"
#include "engine/optim/sgd.h"
#include "engine/runtime/step_graph.h"
#include "tests/support/devices.h"
#include "tests/support/expect_error.h"

namespace lockstep::optim {
namespace {

using lockstep::testing::expect_error;
using lockstep::testing::test_device;
using lockstep::testing::test_device_type;

using Weights = std::vector<std::vector<float>>;
using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(std::vector<Variable>)>;
enum class Steps { issued, captured };

constexpr std::size_t kNumSteps = runtime::StepGraph::kNumWarmUps + 6;

class CapturedStep : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device_type() == DeviceType::cpu) GTEST_SKIP() << "a test of CUDA graphs";
  }
};

struct Trained {
  Weights weights;
  std::vector<float> losses;
  bool operator==(const Trained&) const = default;
};

// Every step has a batch and a learning rate of its own, in memory that stays.
Trained train(const char* model_text, const MakeOptimizer& make_optimizer, Steps steps) {
  const auto model = nn::make_mlp(model_text, 1);
  model->to(test_device());
  const auto optimizer = make_optimizer(model->parameters());
  const Variable x(Tensor::zeros({16, 20}, DType::float32, test_device()));
  const Tensor labels = Tensor::zeros({16}, DType::int64, test_device());
  const Tensor loss_of_step = Tensor::zeros({}, DType::float32, test_device());
  runtime::StepGraph graph({test_device()});
  Trained trained;
  Rng rng(3);
  for (std::size_t step = 0; step < kNumSteps; ++step) {
    x.value().copy_from(Tensor::uniform({16, 20}, -1, 1, rng));
    labels.fill(double(step % 10));
    optimizer->set_learning_rate(0.1 / double(step + 1));
    const auto one_step = [&] {
      optimizer->zero_grad();
      const Variable loss = cross_entropy(model->forward(x), labels);
      loss.backward();
      optimizer->step();
      loss_of_step.copy_from(loss.value());
    };
    if (steps == Steps::issued) {
      one_step();
    } else {
      const bool is_replay = graph.is_captured();
      optimizer->write_learning_rate();
      graph.run(one_step);
      if (is_replay) optimizer->count_replayed_step();
    }
    trained.losses.push_back(float(loss_of_step.item()));
  }
  for (const auto& parameter : model->parameters()) {
    trained.weights.push_back(parameter.value().to_vector<float>());
  }
  return trained;
}

const MakeOptimizer kSgd = [](std::vector<Variable> parameters) {
  return std::make_unique<Sgd>(std::move(parameters), SgdOptions{0.1, 0.9});
};
const MakeOptimizer kAdamW = [](std::vector<Variable> parameters) {
  return std::make_unique<AdamW>(std::move(parameters));
};

TEST_F(CapturedStep, OfAnMlpGivesTheWeightsOfIssuedSteps) {
  for (const char* model : {"mlp:20-8-10", "mlp:20-16-12-10:gelu", "mlp:20-9-10:tanh"}) {
    for (const MakeOptimizer* optimizer : {&kSgd, &kAdamW}) {
      EXPECT_EQ(train(model, *optimizer, Steps::captured), train(model, *optimizer, Steps::issued))
          << model;
    }
  }
}

TEST_F(CapturedStep, RefusesDropoutWhichItWouldRepeat) {
  const Variable x(Tensor::full({4, 4}, 1, DType::float32, test_device()));
  runtime::StepGraph graph({test_device()});
  const auto step = [&] { dropout(x, 0.5, 1, 0); };
  for (std::size_t i = 0; i < runtime::StepGraph::kNumWarmUps; ++i) graph.run(step);
  expect_error(ErrorCode::State,
               "[dropout] draws by the number of the step, which a captured graph would repeat; "
               "train without --graph",
               [&] { graph.run(step); });
  EXPECT_EQ(dropout(x, 0, 1, 0).value().to_vector<float>(), std::vector<float>(16, 1))
      << "outside of a graph as before";
}

}  // namespace
}  // namespace lockstep::optim
