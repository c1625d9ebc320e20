// When the doctor does not know which gradient a step of several ranks should have used. That it
// finds wrong ones show the bugs and the mutants.
#include "tools/doctor/expected_gradient.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace lockstep::doctor
