// A training step as one graph: the weights are, bit for bit, those of steps that are issued one
// kernel after the other.
#include <gtest/gtest.h>

#include <functional>

#include "engine/autograd/ops/ops.h"
#include "engine/core/thread_context.h"
#include "engine/nn/models.h"
#include "engine/optim/clip_grad_norm.h"
#include "engine/optim/optimizer.h"
#include "engine/runtime/step_graph.h"
#include "tests/support/devices.h"

namespace lockstep::optim {
namespace {

using lockstep::testing::test_device;
using lockstep::testing::test_device_type;

using Weights = std::vector<std::vector<float>>;
using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(std::vector<Variable>)>;
enum class Steps { issued, captured };

constexpr std::size_t kNumSteps = runtime::StepGraph::kNumWarmUps + 9;

class CapturedStep : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device_type() == DeviceType::cpu) GTEST_SKIP() << "a test of CUDA graphs";
  }
};

struct Trained {
  Weights weights;
  std::vector<float> losses;
  std::vector<double> norms;
  bool operator==(const Trained&) const = default;
};

constexpr std::size_t kNumRows = 16;

// Every step has a batch and a learning rate of its own, in memory that stays. Every third batch
// has fewer rows, as the last one of an epoch may have: its step is issued, also among captured
// ones.
Trained train(const char* model_text, const MakeOptimizer& make_optimizer, Steps steps,
              std::size_t rows_of_third = kNumRows, double max_norm = 0) {
  const auto model = nn::make_mlp(model_text, 1);
  model->to(test_device());
  const auto optimizer = make_optimizer(model->parameters());
  const Tensor x = Tensor::zeros({kNumRows, 20}, DType::float32, test_device());
  const Tensor labels = Tensor::zeros({kNumRows}, DType::int64, test_device());
  runtime::StepGraph graph({test_device()});
  Tensor loss_of_graph;
  Tensor norm_of_graph;
  double norm = 0;
  Trained trained;
  Rng rng(3);
  for (std::size_t step = 0; step < kNumSteps; ++step) {
    x.copy_from(Tensor::uniform({kNumRows, 20}, -1, 1, rng));
    labels.fill(double(step % 10));
    optimizer->set_learning_rate(0.1 / double(step + 1));
    const auto one_step = [&](std::size_t rows) {
      optimizer->zero_grad();
      const Variable loss =
          cross_entropy(model->forward(Variable(x.slice(0, {rows, 20}))), labels.slice(0, {rows}));
      loss.backward();
      // The norm on the device must be the host's, to the bit.
      if (max_norm > 0 && (steps == Steps::captured && rows == kNumRows)) {
        norm_of_graph = clip_grad_norm_on_device(model->parameters(), max_norm);
      } else if (max_norm > 0) {
        norm = clip_grad_norm(model->parameters(), max_norm);
      }
      optimizer->step();
      return loss.value();
    };
    const std::size_t rows = step % 3 == 2 ? rows_of_third : kNumRows;
    Tensor loss;
    if (steps == Steps::issued || rows != kNumRows) {
      loss = one_step(rows);
    } else {
      const bool is_replay = graph.is_captured();
      optimizer->write_learning_rate();
      graph.run([&] { loss_of_graph = one_step(kNumRows); });
      if (is_replay) optimizer->count_replayed_step();
      loss = loss_of_graph;
      if (max_norm > 0) norm = norm_of_graph.item();
    }
    trained.norms.push_back(norm);
    trained.losses.push_back(float(loss.item()));
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

TEST_F(CapturedStep, GivesTheWeightsOfIssuedSteps) {
  for (const char* model : {"mlp:20-8-10", "mlp:20-16-12-10:gelu", "mlp:20-9-10:tanh"}) {
    for (const MakeOptimizer* optimizer : {&kSgd, &kAdamW}) {
      EXPECT_EQ(train(model, *optimizer, Steps::captured), train(model, *optimizer, Steps::issued))
          << model;
    }
  }
}

TEST_F(CapturedStep, HasTheLossOfAnIssuedOne) {
  for (const MakeOptimizer* optimizer : {&kSgd, &kAdamW}) {
    EXPECT_EQ(train("mlp:20-8-10", *optimizer, Steps::captured, 5),
              train("mlp:20-8-10", *optimizer, Steps::issued, 5));
  }
}

TEST_F(CapturedStep, ClipsByTheNormOnTheDevice) {
  for (const double max_norm : {1e-3, 0.7, 1e3, 1e308}) {
    const Trained issued = train("mlp:20-8-10", kSgd, Steps::issued, 5, max_norm);
    EXPECT_EQ(train("mlp:20-8-10", kSgd, Steps::captured, 5, max_norm), issued) << max_norm;
    EXPECT_GT(issued.norms.back(), 0);
  }
}

TEST_F(CapturedStep, DrawsDropoutByTheStepOfEachLaunch) {
  Variable x(Tensor::full({9, 7}, 1, DType::float32, test_device()), RequiresGrad::yes);
  runtime::StepGraph graph({test_device()});
  ThreadContext context = thread_context();
  Tensor dropped;
  // Steps are left out, as a smaller batch in between does, and numbers may be large.
  for (const std::uint64_t step : {0, 1, 2, 3, 4, 7, 8, 1 << 20}) {
    context.step = step << 20;
    context.first_row = 5;
    const ThreadContextScope scope(context);
    graph.run([&] {
      x.clear_grad();
      const Variable y = dropout(x, 0.5, 1, 3);
      sum(y).backward();
      dropped = y.value();
    });
    const std::vector<float> expected = dropout(x.detach(), 0.5, 1, 3).value().to_vector<float>();
    EXPECT_EQ(dropped.to_vector<float>(), expected) << "step " << step;
    EXPECT_EQ(x.grad().to_vector<float>(), expected) << "step " << step;
  }
  EXPECT_TRUE(graph.is_captured());
}

}  // namespace
}  // namespace lockstep::optim
