// The checks inside a run: when they are made, what they find, and that they cost a run nothing.
#include "tools/verdict/rank_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/comm/thread_group.h"
#include "engine/nn/mlp.h"
#include "engine/trace/recorder.h"
#include "tools/training/ranks.h"

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
  return train(task, placement, observer);
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

TEST(RankChecks, AcceptTheEngine) {
  for (const Mode mode : {Mode::data_parallel, Mode::ddp}) {
    for (const int count : {1, 2, 3, 8}) {
      const TrainingResult result = train_checked(digits_task(61, 30), devices(mode, count));
      EXPECT_FALSE(result.findings->failure.has_value()) << result.findings->failure->text();
      for (const GradientCheck& check : result.findings->gradient_checks) {
        EXPECT_LE(check.max_relative_error, 1e-6);
      }
    }
  }
}

// 4 times 8 rows are 32.
TEST(RankChecks, AcceptMicroBatches) {
  TrainingFlags text;
  text.dataset = "embedded-text";
  text.model = "gpt:1-2-16-8";
  text.batch = 32;
  text.steps = 10;
  // An epoch of the digits ends with a batch of 28 rows: 10, 10 and 8 on three ranks.
  for (TrainingTask task : {digits_task(32, 50), make_task(text, 1)}) {
    for (const Mode mode : {Mode::data_parallel, Mode::ddp}) {
      for (const int count : {1, 3}) {
        task.accumulate = 1;
        const TrainingResult whole = train(task, devices(mode, count));
        task.accumulate = 4;
        const TrainingResult result = train_checked(task, devices(mode, count));
        EXPECT_FALSE(result.findings->failure.has_value()) << result.findings->failure->text();
        if (mode == Mode::ddp) {
          EXPECT_EQ(result.comm_bytes_per_step, whole.comm_bytes_per_step);
        }
        EXPECT_LE(largest_difference(keep(whole.weights), keep(result.weights)).value, 1e-5);
      }
    }
  }
}

TEST(RankChecks, AcceptRanksWithoutRows) {
  const TrainingResult result = train_checked(digits_task(3, 5), devices(Mode::ddp, 5));
  EXPECT_FALSE(result.findings->failure.has_value()) << result.findings->failure->text();
}

TEST(RankChecks, KeepTheWeightsOfTheFirstTwentySteps) {
  const TrainingResult twenty = train_checked(digits_task(100, 20), devices(Mode::ddp, 2));
  const TrainingResult thirty = train_checked(digits_task(100, 30), devices(Mode::ddp, 2));
  EXPECT_EQ(thirty.findings->num_first_steps, 20u);
  EXPECT_EQ(thirty.findings->first_weights, keep(twenty.weights));
  const TrainingResult three = train_checked(digits_task(100, 3), devices(Mode::ddp, 2));
  EXPECT_EQ(three.findings->num_first_steps, 3u);
  EXPECT_EQ(three.findings->first_weights, keep(three.weights));
}

// Weights, messages and memory are the same as without checks.
TEST(RankChecks, LeaveNoTraceInTheRun) {
  for (const Mode mode : {Mode::data_parallel, Mode::ddp}) {
    const TrainingTask task = digits_task(400, 8);
    const TrainingResult plain = train(task, devices(mode, 4));
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

// A batch as an engine would hand it to a rank.
data::Batch batch_of(const TrainingTask& task, const std::vector<std::size_t>& rows,
                     std::size_t offset, std::size_t num_global_rows) {
  std::vector<double> x;
  std::vector<std::int64_t> labels;
  for (const std::size_t row : rows) {
    for (const std::uint8_t byte : task.data->train.row(row)) {
      x.push_back(byte * static_cast<double>(task.data->train.scale));
    }
    labels.push_back(task.data->train.labels[row]);
  }
  return {Tensor::from(x, {rows.size(), 64}, Device{}).to(DType::float32),
          Tensor::from(labels, {rows.size()}, Device{}), num_global_rows, offset};
}

TEST(WrongRow, IsTheFirstThatIsAnother) {
  const TrainingTask task = digits_task(8, 1);
  const std::vector<std::size_t> global{7, 1, 300, 2, 900, 4, 1200, 8};
  const std::vector<std::size_t> shard(global.begin() + 4, global.end());
  EXPECT_FALSE(find_wrong_row(task, 0, batch_of(task, shard, 4, 8), global).has_value());
  EXPECT_EQ(find_wrong_row(task, 0, batch_of(task, shard, 3, 8), global)->place, 0u);
  std::vector<std::size_t> swapped = shard;
  std::swap(swapped[1], swapped[2]);
  EXPECT_EQ(find_wrong_row(task, 0, batch_of(task, swapped, 4, 8), global)->place, 1u);
  data::Batch relabelled = batch_of(task, shard, 4, 8);
  relabelled.labels.host<std::int64_t>()[3] += 1;
  const auto wrong = find_wrong_row(task, 0, relabelled, global);
  EXPECT_EQ(wrong->place, 3u);
  EXPECT_STREQ(wrong->what, "another label");
  data::Batch dimmed = batch_of(task, shard, 4, 8);
  for (float& pixel : dimmed.x.host<float>()) pixel *= 1.001f;
  EXPECT_STREQ(find_wrong_row(task, 0, dimmed, global)->what, "other features");
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

TEST(RankChecks, NameTheBufferThatARankDidNotGet) {
  TrainingTask task = digits_task(8, 1);
  task.sampler = Sampler::torch;  // only the replicas are compared
  comm::run_ranks(3, [&](comm::Communicator& communicator) {
    const int rank = communicator.rank();
    const auto module = std::make_shared<WithBuffer>(rank == 2 ? 0.5 : 0.25);
    LocalModels models;
    models.num_ranks = 3;
    models.communicator = &communicator;
    models.ranks.push_back({rank, module, module, {Device{}}});
    RankChecks::Optimizers optimizers;
    optimizers.push_back(make_optimizer(task, models.first()));
    RankChecks checks(task, models, optimizers);
    checks.before_step(0);
    for (Variable& parameter : module->parameters()) parameter.set_grad(parameter.value().clone());
    optimizers[0]->step();
    checks.take_loss(0, {0, 1, 2.3});
    checks.after_step(0, {{}});
    ASSERT_TRUE(checks.findings().failure.has_value());
    EXPECT_THAT(checks.findings().failure->text(),
                HasSubstr("replicas: step 0, rank 2, parameter running_mean: before the step it "
                          "differs from rank 0's by 0.25"));
  });
}

// One rank without rows to share: what is done to it between two steps shows.
class OneRank {
 public:
  explicit OneRank(const TrainingTask& task) : task_(task) {
    const auto module = make_model(task, Device{});
    models_.ranks.push_back({0, module, module, {Device{}}});
    optimizers_.push_back(make_optimizer(task, models_.first()));
    checks_.emplace(task_, models_, optimizers_);
  }

  // The loss is that of guessing, or `loss`.
  void step(double loss = 2.3) {
    checks_->before_step(step_);
    for (Variable& parameter : models_.first().inner->parameters()) {
      parameter.set_grad(Tensor::full(parameter.shape(), 0.01));
    }
    optimizer().set_learning_rate(reference_learning_rate(task_.optimizer, step_));
    optimizer().step();
    checks_->take_loss(0, {step_, 1, loss});
    checks_->after_step(step_++, {{}});
  }

  optim::Optimizer& optimizer() { return *optimizers_[0]; }
  RankChecks& checks() { return *checks_; }
  std::string failure() const {
    return checks_->findings().failure ? checks_->findings().failure->text() : "";
  }

 private:
  const TrainingTask& task_;
  LocalModels models_;
  RankChecks::Optimizers optimizers_;
  std::optional<RankChecks> checks_;
  std::size_t step_ = 0;
};

TrainingTask unsampled_task(std::size_t num_steps) {
  TrainingTask task = digits_task(1500, num_steps);  // every step is an epoch's last
  task.sampler = Sampler::torch;                     // rows are no matter here
  return task;
}

TEST(RankChecks, SeeWhatChangesBetweenTwoSteps) {
  const TrainingTask task = unsampled_task(3);
  OneRank rank(task);
  rank.step();
  EXPECT_EQ(rank.failure(), "");
  rank.optimizer().state(1).tensors[0].fill(0);
  rank.step();
  EXPECT_EQ(rank.failure(),
            "update: step 1, rank 0, parameter 0.bias momentum: it changed after the step before, "
            "before this one: 0.01 apart");
}

TEST(RankChecks, SeeAnUpdateThatIsOffInTheLastBit) {
  TrainingTask task = unsampled_task(1);
  task.optimizer.weight_decay = 1e-6;
  OneRank rank(task);
  task.optimizer.weight_decay = 2e-6;  // what the checks go by
  rank.step();
  EXPECT_THAT(rank.failure(), HasSubstr("update: step 0, rank 0, parameter 0.weight"));
}

TEST(RankChecks, SeeAnEpochsLossThatIsNotTheMean) {
  const TrainingTask task = unsampled_task(2);
  OneRank rank(task);
  rank.step(2.5);
  rank.checks().after_epoch(0, 2.5);
  EXPECT_EQ(rank.failure(), "");
  rank.step(2.25);
  rank.checks().after_epoch(1, 2.5);
  EXPECT_THAT(rank.failure(), HasSubstr("loss: step 1, rank 0"));
}

TEST(RankChecks, DoNotJudgeARunAfterItsLossExploded) {
  const TrainingTask task = unsampled_task(3);
  OneRank rank(task);
  rank.step();
  rank.step(1e6);
  rank.optimizer().state(1).tensors[0].fill(0);
  rank.step();
  EXPECT_EQ(rank.failure(), "");
  EXPECT_THAT(rank.checks().findings().exploded, HasSubstr("the loss exploded"));
}

TEST(RankChecks, CompareReplicasAlsoUnderTheTorchSampler) {
  TrainingTask task = digits_task(64, 3);
  task.sampler = Sampler::torch;
  const TrainingResult result = train_checked(task, devices(Mode::ddp, 2));
  EXPECT_TRUE(result.findings->gradient_checks.empty());
  EXPECT_FALSE(result.findings->failure.has_value());
}

TEST(RankChecks, KnowThatGradientsAreClipped) {
  TrainingTask task = digits_task(64, 3);
  task.optimizer.clip_norm = 1e-3;
  const TrainingResult result = train_checked(task, devices(Mode::ddp, 3));
  EXPECT_FALSE(result.findings->failure.has_value()) << result.findings->failure->text();
}

}  // namespace
}  // namespace lockstep::tools
