// Verdicts on findings made by hand.
#include "tools/check/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/expect_error.h"
#include "tools/check/reference_step.h"

namespace lockstep::tools {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TrainingResult result_with(double first_weight) {
  TrainingResult result;
  result.findings.emplace();
  result.findings->num_first_steps = 20;
  result.findings->first_movement = result.findings->movement = 0.5;
  result.findings->first_weights = {{"0.weight", {1.0, first_weight}}, {"0.bias", {0.5}}};
  result.weights = {{"0.weight", Tensor::from(std::vector<double>{first_weight}, {1})}};
  return result;
}

TrainingTask task_in(DType dtype) {
  TrainingTask task;
  task.dtype = dtype;
  task.num_steps = 20;
  return task;
}

// Fails the test if the verdict asks for a repeat.
Repeats never() {
  return {[](DType, std::size_t) {
            ADD_FAILURE() << "nothing had to be repeated";
            return StateDistance{};
          },
          [](DType, std::size_t) {
            ADD_FAILURE() << "no control was needed";
            return StateDistance{};
          }};
}

// The row's difference in the other precision, and one device's from itself.
Repeats repeats(double difference, double control) {
  const auto distance = [](double value) { return StateDistance{{"", value}, {"", value}}; };
  return {[=](DType, std::size_t) { return distance(difference); },
          [=](DType, std::size_t) { return distance(control); }};
}

TEST(Verdict, MeasuresByTheWayThatTheWeightsHaveGone) {
  const TrainingTask task = task_in(DType::float32);
  const auto verdict = judge(task, result_with(0.5), result_with(0.5 + 5e-6), never());
  EXPECT_TRUE(verdict->equal());
  EXPECT_NEAR(verdict->first_steps_max_abs_diff, 5e-6, 1e-12);
  EXPECT_DOUBLE_EQ(verdict->first_steps_tolerance, 0.5e-5 + 0x1p-21);
  EXPECT_DOUBLE_EQ(judge(task_in(DType::float64), result_with(0.5), result_with(0.5), never())
                       ->first_steps_tolerance,
                   0.5e-12 + 0x1p-50);
  TrainingResult slow = result_with(0.5);
  slow.findings->first_movement = 1e-4;
  EXPECT_FALSE(judge(task, slow, result_with(0.5 + 5e-6), repeats(5e-6, 1e-16))->equal());
}

TEST(Verdict, AcceptsADifferenceThatIsGoneInFloat64) {
  const TrainingTask task = task_in(DType::float32);
  const auto verdict = judge(task, result_with(0.5), result_with(0.501), repeats(2e-13, 0));
  EXPECT_TRUE(verdict->equal());
  EXPECT_THAT(verdict_lines(task, {*verdict}),
              Contains("  weights after 20 steps: 0.001 apart, float32 rounding that training"));
  EXPECT_THAT(verdict_lines(task, {*verdict}), Contains("  amplifies: in float64 it is 2e-13"));
}

// Rounding is 5e8 times larger in float32; a fault is not.
TEST(Verdict, ProvesFloat64InFloat32) {
  const TrainingTask task = task_in(DType::float64);
  const TrainingResult row = result_with(0.5 + 1e-10);
  EXPECT_TRUE(judge(task, result_with(0.5), row, repeats(0.01, 0))->equal());
  EXPECT_FALSE(judge(task, result_with(0.5), row, repeats(1e-9, 1e-15))->equal());
}

TEST(Verdict, ComparesNoWeightsWhereTrainingAmplifiesAnyRounding) {
  const auto verdict =
      judge(task_in(DType::float32), result_with(0.5), result_with(0.9), repeats(0.3, 0.2));
  EXPECT_TRUE(verdict->equal());
  EXPECT_THAT(verdict->incomparable, HasSubstr("amplifies any rounding"));
  const std::vector<std::string> lines = verdict_lines(task_in(DType::float32), {*verdict});
  EXPECT_EQ(lines.front(), "verdict: every row makes the steps that one device makes");
  EXPECT_THAT(lines.back(), HasSubstr("weights of 1 of 1 rows are not compared"));
}

TrainingTask long_task() {
  TrainingTask task = task_in(DType::float32);
  task.num_steps = 2000;
  return task;
}

// A row whose first steps are right, and whose weights are `last` at the end.
TrainingResult drifted(double last) {
  TrainingResult result = result_with(0.5);
  result.weights[0].second.fill(last);
  return result;
}

TEST(Verdict, JudgesDriftByRepeatingItInFloat64) {
  const auto rounding = judge(long_task(), drifted(0.5), drifted(0.9), repeats(3e-9, 1e-12));
  EXPECT_TRUE(rounding->equal());
  EXPECT_EQ(rounding->repeated_drift, 3e-9);
  const auto fault = judge(long_task(), drifted(0.5), drifted(0.9), repeats(0.4, 1e-12));
  ASSERT_TRUE(fault->failure.has_value());
  EXPECT_EQ(
      fault->failure->text(),
      "drift: step 1999, rank 0, parameter 0.weight: after 2,000 steps it differs from one "
      "device's by 0.4, limit 0.0005; in float64 by 0.4, so it is not rounding, which shrinks by "
      "about 1e8 in float64");
  EXPECT_TRUE(judge(long_task(), drifted(0.5), drifted(0.5004), never())->equal());
}

TEST(Verdict, BitwiseRowsMayNotDifferAtAllFromFirstToLast) {
  TrainingTask task = task_in(DType::float32);
  task.summation = Summation::bitwise;
  EXPECT_TRUE(judge(task, result_with(0.5), result_with(0.5), never())->equal());
  EXPECT_EQ(judge(task, result_with(0.5), result_with(0.5 + 1e-15), never())->failure->check,
            "first steps");
  TrainingResult later = result_with(0.5);
  later.weights[0].second.fill(0.5 + 1e-15);
  EXPECT_EQ(judge(task, result_with(0.5), later, never())->failure->check, "bits");
}

TEST(VerdictLines, SayHowFarRoundingWentAndThatItIsRounding) {
  TrainingTask task = task_in(DType::float32);
  task.num_steps = 23450;
  Verdict verdict;
  verdict.first_steps_tolerance = 1e-5;
  verdict.gradient_limit = 1e-5;
  verdict.gradient_checks = {{0, 2e-7, 0}, {938, 3e-7, 0}};
  verdict.drift = 0.437;
  verdict.repeated_drift = 2e-9;
  EXPECT_THAT(verdict_lines(task, {verdict}),
              ElementsAre("verdict: every row trains as one device does",
                          HasSubstr("weights after 20 steps"),
                          HasSubstr("2 whole steps from the same state: gradients within 3.0e-07"),
                          HasSubstr("every update by the optimizer's formula"),
                          HasSubstr("drift after 23,450 steps: 0.44, float32 rounding"),
                          HasSubstr("in float64 it is 2e-09")));
  for (const std::string& line : verdict_lines(task, {verdict})) {
    EXPECT_LE(line.size(), 80u) << line;
  }
}

ReferenceGradient reference_of(const std::vector<double>& gradient, double size) {
  return {{{"w", gradient}}, {size}};
}

double gradient_error(const std::vector<double>& found, const ReferenceGradient& reference) {
  return errors_of({{"w", found}}, {}, reference, 1e-5)[0].error;
}

// The gradient has two pieces of norm 5 that agree.
TEST(Errors, OfAGradientAreRelativeToWhatWasAddedUp) {
  const ReferenceGradient reference = reference_of({3, 4}, 10);
  EXPECT_EQ(gradient_error({3, 4}, reference), 0);
  EXPECT_DOUBLE_EQ(gradient_error({3, 4.1}, reference), (4.1 - 4) / 10);
  EXPECT_EQ(gradient_error({}, reference), kInfinity) << "a missing gradient";
  EXPECT_TRUE(std::isnan(gradient_error({3, kNan}, reference)));
  EXPECT_EQ(gradient_error({1e-30}, reference_of({0}, 0)), kInfinity);
}

TEST(Errors, OfRunningStatisticsAreRelativeToTheirSize) {
  ReferenceGradient reference = reference_of({3, 4}, 10);
  reference.statistics = {{"bn.running_mean", {0.5, 0}}, {"bn.running_var", {200, 1}}};
  const KeptTensors found{{"bn.running_mean", {0.5, 0.1}}, {"bn.running_var", {200, 2}}};
  const std::vector<TensorError> errors = errors_of({{"w", {3, 4}}}, found, reference, 1e-5);
  ASSERT_EQ(errors.size(), 3u);
  EXPECT_FALSE(errors[0].is_beyond());
  EXPECT_DOUBLE_EQ(errors[1].error, 0.1);
  EXPECT_DOUBLE_EQ(errors[2].error, 1.0 / 200);
  EXPECT_TRUE(errors[2].is_beyond());
}

// One bit changes the gradient by 1e-4, so rounding may change it by a hundred times that.
TEST(Errors, MayBeAsLargeAsATrainingAmplifiesOneBit) {
  const ReferenceGradient reference = reference_of({3, 4}, 10);
  std::vector<TensorError> errors = errors_of({{"w", {3, 4.05}}}, {}, reference, 1e-5);
  EXPECT_TRUE(errors[0].is_beyond());
  allow_amplified(errors, reference, reference_of({3, 4.001}, 10));
  EXPECT_FALSE(errors[0].is_beyond());
  errors = errors_of({{"w", {3, 4.2}}}, {}, reference, 1e-5);
  allow_amplified(errors, reference, reference_of({3, 4.001}, 10));
  EXPECT_TRUE(errors[0].is_beyond());
}

TEST(Verdict, FindsRunningStatisticsThatAreNotOneDevices) {
  const auto with_variance = [](double variance) {
    TrainingResult result = result_with(0.5);
    result.findings->first_weights.push_back({"1.running_var", {variance}});
    return result;
  };
  const TrainingTask task = task_in(DType::float32);
  EXPECT_TRUE(judge(task, with_variance(200), with_variance(200.001), never())->equal());
  const auto verdict = judge(task, with_variance(200), with_variance(201), repeats(1, 1e-15));
  ASSERT_TRUE(verdict->failure.has_value());
  EXPECT_THAT(verdict->failure->text(), HasSubstr("parameter 1.running_var"));
}

TEST(ThrowFailure, NamesTheCheckThatForetoldALossThatIsNotFinite) {
  RunFindings findings;
  EXPECT_NO_THROW(throw_failure(findings, kNan));
  findings.failure = {"gradients", 0, 1, "0.weight", "relative error 1"};
  EXPECT_NO_THROW(throw_failure(findings, 1.0));
  lockstep::testing::expect_error(ErrorCode::Numeric,
                                  "gradients: step 0, rank 1, parameter 0.weight",
                                  [&] { throw_failure(findings, kNan); });
}

}  // namespace
}  // namespace lockstep::tools
