// The gradient that a step of several ranks should have used, from records made by hand.
#include "tools/doctor/expected_gradient.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

namespace lockstep::doctor {
namespace {

// A rank with one parameter, whose rows' gradients sum up to rows_sum in each place of the sketch.
StepRecord make_step(std::uint64_t num_rows, double rows_sum, double upstream, double used) {
  StepRecord step;
  step.passes[1] = {{num_rows, /*is_mean=*/true, upstream, 0.5, {}, {}}};
  ParameterRecord parameter;
  parameter.has_gradient = true;
  PartRecord part{1, {}};
  part.gradient.fill(rows_sum * upstream / static_cast<double>(num_rows));
  parameter.parts = {part};
  parameter.used.fill(used);
  step.parameters = {parameter};
  return step;
}

class TwoRanks : public ::testing::Test {
 protected:
  TwoRanks()
      : steps_{make_step(3, 12, 1, 4.4), make_step(2, 10, 1, 4.4)},
        trainers_{{{&steps_[0]}}, {{&steps_[1]}}},
        training_{{&trainers_[0], &trainers_[1]}, Training::Link::exchange} {}

  std::optional<GlobalGradient> gradient() const { return global_gradient(training_, 0); }

  std::vector<StepRecord> steps_;
  std::vector<Trainer> trainers_;
  Training training_;
};

TEST_F(TwoRanks, ShouldUseTheMeanOverTheRowsOfBoth) {
  const auto found = gradient();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->num_rows, 5u);
  EXPECT_DOUBLE_EQ(found->mean[0], (12.0 + 10.0) / 5);
  EXPECT_TRUE(found->is_close(found->ranks[0].used, found->mean));
}

TEST_F(TwoRanks, ShouldDoSoWhateverFactorTheirLossesHave) {
  steps_[1] = make_step(2, 10, /*upstream=*/7, 4.4);
  const auto found = gradient();
  ASSERT_TRUE(found.has_value());
  EXPECT_DOUBLE_EQ(found->mean[0], 4.4);
}

TEST_F(TwoRanks, AreToldByWhichFactorTheyAreWrong) {
  const auto found = gradient();
  ASSERT_TRUE(found.has_value());
  const Values twice(found->mean.size(), 8.8);
  ASSERT_TRUE(found->factor(twice, found->mean).has_value());
  EXPECT_NEAR(*found->factor(twice, found->mean), 2, 1e-12);
  EXPECT_FALSE(found->is_close(twice, found->mean));
}

TEST_F(TwoRanks, AreNotJudgedByWhatIsNotKnown) {
  steps_[0].was_clipped = true;
  EXPECT_FALSE(gradient().has_value()) << "clipped";
  steps_[0].was_clipped = false;
  steps_[1].passes.clear();
  EXPECT_FALSE(gradient().has_value()) << "a loss of another kind";
  steps_[1] = make_step(2, std::numeric_limits<double>::quiet_NaN(), 1, 4.4);
  EXPECT_FALSE(gradient().has_value()) << "not a number";
  steps_[1] = make_step(2, 10, 1, 4.4);
  steps_[1].parameters[0].was_discarded = true;
  EXPECT_FALSE(gradient().has_value()) << "taken away in between";
  steps_[1].parameters[0].was_discarded = false;
  EXPECT_TRUE(gradient().has_value());
}

TEST(WeightsOfRows, AreFoundWhereTheRanksGradientsDiffer) {
  std::vector<StepRecord> steps{make_step(3, 1, 1, 0), make_step(1, 1, 1, 0)};
  for (std::size_t i = 0; i < record::kSketchSize; ++i) {  // not multiples of each other
    const auto x = static_cast<double>(i);
    steps[0].parameters[0].parts[0].gradient[i] = std::sin(x) / 3;
    steps[1].parameters[0].parts[0].gradient[i] = std::cos(x);
    const double mean_of_means = (std::sin(x) / 3 + std::cos(x)) / 2;
    for (StepRecord& step : steps) step.parameters[0].used[i] = mean_of_means;
  }
  const std::vector<Trainer> trainers{{{&steps[0]}}, {{&steps[1]}}};
  const auto found = global_gradient({{&trainers[0], &trainers[1]}, Training::Link::exchange}, 0);
  ASSERT_TRUE(found.has_value());
  const auto weights = found->weights_of_rows(found->ranks[0].used);
  ASSERT_TRUE(weights.has_value());
  EXPECT_NEAR((*weights)[0], 1.0 / 6, 1e-9);  // half of a third
  EXPECT_NEAR((*weights)[1], 1.0 / 2, 1e-9);
  EXPECT_FALSE(found->factor(found->ranks[0].used, found->mean).has_value());
}

}  // namespace
}  // namespace lockstep::doctor
