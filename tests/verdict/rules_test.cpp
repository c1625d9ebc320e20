// The verdict's own rules: against numbers from PyTorch and from a second program.
#include "tools/check/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/data/sampler.h"
#include "tests/support/expect_close.h"

namespace lockstep::tools {
namespace {

using lockstep::testing::expect_close;
using lockstep::testing::kFloat64;
using ::testing::ElementsAre;

std::vector<double> rates(const char* schedule, std::size_t num_steps, std::size_t warmup_steps,
                          std::size_t count) {
  OptimizerSettings settings;
  settings.learning_rate = 0.4;
  settings.schedule = optim::parse_schedule(schedule, num_steps, warmup_steps);
  std::vector<double> result;
  for (std::size_t step = 0; step < count; ++step) {
    result.push_back(rules::learning_rate(settings, step));
  }
  return result;
}

// PyTorch 2.15; tests/engine/optim/schedule_test.cpp names the schedulers.
TEST(Rules, LearningRatesAreThoseOfPyTorchsSchedulers) {
  expect_close(rates("constant", 10, 0, 3), {0.4, 0.4, 0.4}, kFloat64);
  expect_close(rates("step:2:0.5", 10, 0, 6), {0.4, 0.4, 0.2, 0.2, 0.1, 0.1}, kFloat64);
  expect_close(
      rates("cosine", 6, 0, 6),
      {0.4, 0.3732050807568878, 0.30000000000000004, 0.2, 0.10000000000000005, 0.02679491924311226},
      kFloat64);
  expect_close(rates("cosine:0.25", 5, 0, 7),
               {0.4, 0.37135254915624216, 0.29635254915624215, 0.2036474508437579,
                0.1286474508437579, 0.1, 0.1},
               kFloat64);
  expect_close(rates("cosine", 9, 4, 9),
               {0.1, 0.2, 0.30000000000000004, 0.4, 0.4, 0.3618033988749895, 0.2618033988749895,
                0.13819660112501053, 0.03819660112501053},
               kFloat64);
  expect_close(rates("step:2:0.5", 8, 2, 7), {0.2, 0.4, 0.4, 0.4, 0.2, 0.2, 0.1}, kFloat64);
  expect_close(rates("constant", 8, 1, 2), {0.4, 0.4}, kFloat64);
  expect_close(rates("cosine", 3, 10, 11),
               {0.04, 0.08, 0.12, 0.16, 0.2, 0.24, 0.28, 0.32, 0.36, 0.4, 0}, kFloat64);
}

TrainingTask rows_task(std::size_t num_rows, std::uint64_t seed) {
  const auto data = std::make_shared<datasets::Dataset>();
  data->train.labels.resize(num_rows);
  TrainingTask task;
  task.data = data;
  task.seed = seed;
  return task;
}

TrainingTask text_task(std::size_t num_tokens, std::size_t length, std::uint64_t seed) {
  const auto data = std::make_shared<datasets::Dataset>();
  data->train.tokens.resize(num_tokens);
  data->train.num_features = length;
  TrainingTask task;
  task.data = data;
  task.seed = seed;
  return task;
}

// By a Python program of Philox4x32-10 and of Durstenfeld's shuffle, checked against Random123's
// kat_vectors.
TEST(Rules, AnEpochsOrderIsThatOfTheSourcesGenerator) {
  EXPECT_THAT(rules::epoch_order(rows_task(10, 3), 0), ElementsAre(6, 3, 9, 7, 8, 1, 0, 5, 2, 4));
  EXPECT_THAT(rules::epoch_order(rows_task(10, 3), 1), ElementsAre(9, 3, 5, 0, 6, 2, 8, 7, 4, 1));
  EXPECT_THAT(rules::epoch_order(text_task(1200, 200, 7), 0), ElementsAre(612, 359, 61, 186, 281));
  TrainingTask task = rows_task(3, 1);
  task.shuffle = data::Shuffle::off;
  EXPECT_THAT(rules::epoch_order(task, 5), ElementsAre(0, 1, 2));
  task = text_task(100, 30, 1);
  task.shuffle = data::Shuffle::off;
  EXPECT_THAT(rules::epoch_order(task, 5), ElementsAre(0, 30, 60));
}

TEST(Rules, AnEpochsOrderIsTheEngines) {
  for (const std::uint64_t seed : {std::uint64_t{0}, ~std::uint64_t{0}}) {
    for (const std::size_t size : {0, 1, 2, 1500}) {
      EXPECT_EQ(rules::epoch_order(rows_task(size, seed), 3),
                data::epoch_order(size, seed, 3, data::Shuffle::on));
    }
    const TrainingTask task = text_task(5000, 16, seed);
    EXPECT_EQ(rules::epoch_order(task, 3),
              data::epoch_order(task.data->train.num_rows(), seed, 3, data::Shuffle::on,
                                task.data->train.windows()));
  }
}

// The weights after the four steps of tests/engine/optim/optimizer_test.cpp, whose numbers are
// PyTorch's.
std::vector<double> after_four_steps(const OptimizerSettings& settings) {
  const std::vector<double> factors{0.3, -0.1, 0.7};
  std::vector<double> weights{1.0, -2.0, 0.5};
  for (std::size_t i = 0; i < weights.size(); ++i) {
    rules::Element element{rules::held(weights[i], DType::float64), {}};
    for (std::size_t step = 0; step < 4; ++step) {
      const double gradient = factors[i] * static_cast<double>(step + 1) - 0.5;
      element = rules::updated(
          settings, {step, settings.learning_rate, settings.weight_decay, DType::float64}, element,
          rules::held(gradient, DType::float64));
    }
    weights[i] = element.weight.value;
  }
  return weights;
}

TEST(Rules, UpdatesAreThoseOfPyTorchsOptimizers) {
  OptimizerSettings sgd;
  sgd.momentum = 0;
  sgd.weight_decay = 0.05;
  expect_close(after_four_steps(sgd),
               {0.8801507481249999, -1.6622927587499998, -0.007928997187500005}, kFloat64);
  sgd.momentum = 0.9;
  sgd.weight_decay = 0;
  expect_close(after_four_steps(sgd),
               {0.8956800000000001, -1.3619599999999998, -0.3466799999999999}, kFloat64);
  sgd.weight_decay = 0.05;
  sgd.momentum_kind = optim::SgdOptions::Kind::nesterov;
  expect_close(after_four_steps(sgd), {0.7454535869273126, -1.017146039755875, -0.7824122500159686},
               kFloat64);
  OptimizerSettings adamw;
  adamw.kind = OptimizerKind::adamw;
  adamw.learning_rate = 1e-3;
  adamw.weight_decay = 1e-2;
  expect_close(after_four_steps(adamw),
               {1.0000775797014598, -1.995909668125038, 0.4963090330439086}, kFloat64);
}

TEST(Rules, VectorsDecayUnlessGroupsAreUsual) {
  OptimizerSettings settings;
  settings.weight_decay = 0.1;
  EXPECT_EQ(rules::weight_decay(settings, {8}), 0.1);
  settings.decays = OptimizerSettings::Decays::matrices;
  EXPECT_EQ(rules::weight_decay(settings, {8}), 0);
  EXPECT_EQ(rules::weight_decay(settings, {8, 1}), 0.1);
}

TEST(Rules, GradientsAreClippedByTheirNorm) {
  EXPECT_EQ(rules::clip_factor(0.5, 1), 1);
  EXPECT_NEAR(rules::clip_factor(4, 1), 0.25, 1e-6);
}

TEST(Rules, AValueMayBeAFewRoundingsOfItsTermsAway) {
  const rules::Sum sum{1e-3, 2};  // terms that nearly cancel
  EXPECT_TRUE(rules::is_rounded(1e-3 + 1e-6, sum, DType::float32));
  EXPECT_FALSE(rules::is_rounded(1e-3 + 1e-5, sum, DType::float32));
  EXPECT_FALSE(rules::is_rounded(1e-3 + 1e-6, sum, DType::float64));
  EXPECT_FALSE(rules::is_rounded(std::nan(""), sum, DType::float32));
  EXPECT_TRUE(rules::is_rounded(1e-39, rules::held(0, DType::float32), DType::float32));
  EXPECT_TRUE(rules::is_rounded(INFINITY, {1e39, 1e39}, DType::float32));
  EXPECT_FALSE(rules::is_rounded(INFINITY, {1e39, 1e39}, DType::float64));
}

// Beyond float32's range a second moment is infinite, and the weight stays where it is.
TEST(Rules, NothingIsSaidOfAStepThatOverflows) {
  OptimizerSettings adamw;
  adamw.kind = OptimizerKind::adamw;
  const rules::Element after =
      rules::updated(adamw, {0, 0.1, 0, DType::float32}, {rules::held(1, DType::float32), {}},
                     rules::held(1e25, DType::float32));
  EXPECT_TRUE(rules::is_rounded(1, after.weight, DType::float32));
}

}  // namespace
}  // namespace lockstep::tools
