// The checks inside a run: when they are made, what they find, and that they cost a run nothing.
#include "tools/check/rank_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/comm/thread_group.h"
#include "engine/nn/models.h"
#include "engine/trace/recorder.h"
#include "tools/run/ranks.h"

namespace lockstep::tools {
namespace {

using ::testing::HasSubstr;

TrainingTask digits_task(std::size_t batch, std::size_t num_steps) {
  TrainingFlags flags;
  flags.model = "mlp:64-16-10";
  flags.batch = static_cast<int>(batch);
  flags.steps = static_cast<int>(num_steps);
  return make_task(flags, 1);
}

DevicePlacement devices(Mode mode, int count) {
  DevicePlacement placement{mode, {}, std::nullopt};
  for (int i = 0; i < count; ++i) placement.devices.push_back({DeviceType::cpu, i});
  return placement;
}

TrainingResult train_checked(const TrainingTask& task, const DevicePlacement& placement) {
  TrainingObserver observer;
  observer.checks = Checks::on;
  return train(task, placement, observer).result;
}

std::vector<std::size_t> checked_steps(const TrainingResult& result) {
  std::vector<std::size_t> steps;
  for (const GradientCheck& check : result.findings->gradient_checks) steps.push_back(check.step);
  return steps;
}

// 1500 rows in batches of 400: 4 steps an epoch, the last of 300 rows.
TEST(RankChecks, JudgeTheFirstStepEveryEpochsLastAndTheRunsLast) {
  const TrainingResult result = train_checked(digits_task(400, 7), devices(Mode::ddp, 3));
  EXPECT_EQ(checked_steps(result), (std::vector<std::size_t>{0, 3, 6}));
  EXPECT_EQ(checked_steps(train_checked(digits_task(500, 4), devices(Mode::data_parallel, 2))),
            (std::vector<std::size_t>{0, 2, 3}));
}

TEST(RankChecks, JudgeTheStepAfterTheFirstOnesAndAFewDrawnByTheSeed) {
  TrainingTask task = digits_task(4, 300);
  const std::vector<std::size_t> steps = checked_steps(train_checked(task, devices(Mode::ddp, 2)));
  EXPECT_EQ(steps[0], 0u);
  EXPECT_EQ(steps[1], kFirstSteps);
  EXPECT_EQ(steps.back(), 299u);
  EXPECT_GE(steps.size(), 5u);
  task.seed = 1;
  EXPECT_NE(checked_steps(train_checked(task, devices(Mode::ddp, 2))), steps);
}

// 16 rows on 3 devices: 6, 6 and 4.
TEST(RankChecks, DrawTheDropoutMasksOfARowInEveryStep) {
  TrainingFlags flags;
  flags.dataset = "embedded-text";
  flags.model = "gpt:2-2-16-8";
  flags.batch = 16;
  flags.steps = 4;
  TrainingTask task = make_task(flags, 1);
  task.dropout = 0.3;
  const TrainingResult single = train_checked(task, devices(Mode::single, 1));
  EXPECT_FALSE(single.findings->failure.has_value()) << single.findings->failure->text();
  for (const Mode mode : {Mode::ddp, Mode::data_parallel}) {
    const TrainingResult result = train_checked(task, devices(mode, 3));
    EXPECT_FALSE(result.findings->failure.has_value()) << result.findings->failure->text();
    EXPECT_LE(distance(keep(single.weights), keep(result.weights)).parameters.value, 1e-5);
  }
  task.dropout = 0;
  const TrainingResult without = train_checked(task, devices(Mode::single, 1));
  EXPECT_GT(distance(keep(single.weights), keep(without.weights)).parameters.value, 1e-3);
}

TEST(RankChecks, AcceptRanksWithoutRows) {
  const TrainingResult result = train_checked(digits_task(3, 5), devices(Mode::ddp, 5));
  EXPECT_FALSE(result.findings->failure.has_value()) << result.findings->failure->text();
}

// Weights, messages and memory are the same as without checks.
TEST(RankChecks, LeaveNoTraceInTheRun) {
  for (const Mode mode : {Mode::data_parallel, Mode::ddp}) {
    const TrainingTask task = digits_task(400, 8);
    const TrainingResult plain = train(task, devices(mode, 4)).result;
    const TrainingResult checked = train_checked(task, devices(mode, 4));
    EXPECT_EQ(keep(checked.weights), keep(plain.weights));
    EXPECT_EQ(checked.comm_bytes_per_step, plain.comm_bytes_per_step);
    EXPECT_FALSE(plain.findings.has_value());
    // How far the loader looks ahead in a run this short is undefined: up to 32 batches of 16 bytes
    // a row.
    const std::size_t ahead = 32 * 400 * 16;
    EXPECT_LE(checked.peak_bytes[0], plain.peak_bytes[0] + ahead);
  }
}

TEST(RankChecks, AreOutsideOfTheRecordedSteps) {
  trace::start();
  train_checked(digits_task(400, 5), devices(Mode::ddp, 2));
  trace::stop();
  const trace::Recording recording = trace::collect();
  std::size_t num_checks = 0;
  for (const trace::Span& check : recording.spans) {
    if (std::string_view(check.name) != "check") continue;
    ++num_checks;
    for (const trace::Span& step : recording.spans) {
      if (step.category != trace::Category::step || step.rank != check.rank) continue;
      EXPECT_TRUE(step.end_ns <= check.begin_ns || check.end_ns <= step.begin_ns);
    }
  }
  EXPECT_EQ(num_checks, 2u * 3);  // steps 0, 3 and 4, on two ranks
}

// A buffer, such as a running mean, that one rank did not get from rank 0.
class WithBuffer final : public nn::ModuleOf<WithBuffer> {
 public:
  explicit WithBuffer(double buffer) {
    register_child("net", nn::make_mlp("mlp:64-16-10", 0));
    register_buffer("running_mean", Tensor::full({4}, buffer));
  }
  Variable forward(const Variable& x) override { return (*children()[0].second)(x); }
  std::string type_name() const override { return "WithBuffer"; }
};

class OfTheTest final : public parallel::Strategy {
 public:
  using Strategy::Strategy;
  Tensor add_gradients(const data::Batch&, const parallel::BatchLoss&) override { return {}; }
};

TEST(RankChecks, NameTheBufferThatARankDidNotGet) {
  TrainingTask task = digits_task(8, 1);
  task.sampler = Sampler::torch;  // only the replicas are compared
  comm::run_ranks(3, [&](comm::Communicator& communicator) {
    const int rank = communicator.rank();
    const auto module = std::make_shared<WithBuffer>(rank == 2 ? 0.5 : 0.25);
    Strategies strategies;
    strategies.push_back(std::make_unique<OfTheTest>(
        parallel::Strategy::Setup{.module = module, .communicator = &communicator}));
    Optimizers optimizers;
    optimizers.push_back(make_optimizer(task, *strategies[0]));
    RankChecks checks(task, strategies, optimizers);
    checks.before_step(0);
    for (Variable& parameter : module->parameters()) parameter.set_grad(parameter.value().clone());
    optimizers[0]->step();
    checks.take_loss(0, {0, 1, 2.3});
    checks.after_step(0, {{}});
    ASSERT_TRUE(checks.findings().failure.has_value());
    EXPECT_THAT(checks.findings().failure->text(),
                HasSubstr("replicas: step 0, rank 2, parameter running_mean: before the step "
                          "differs from rank 0's"));
  });
}

}  // namespace
}  // namespace lockstep::tools
