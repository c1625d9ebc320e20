// What follows from the findings, on results made by hand.
#include "tools/verdict/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/expect_error.h"

namespace lockstep::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TrainingResult result_with(double first_weight) {
  TrainingResult result;
  result.findings.emplace();
  result.findings->num_first_steps = 20;
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

double never(DType, std::size_t) {
  ADD_FAILURE() << "nothing had to be repeated";
  return 0;
}

TEST(Verdict, AcceptsWeightsWithinTheTolerance) {
  const TrainingTask task = task_in(DType::float32);
  const auto verdict = judge(task, result_with(0.5), result_with(0.5 + 9e-6), never);
  EXPECT_TRUE(verdict->equal());
  EXPECT_NEAR(verdict->first_steps_max_abs_diff, 9e-6, 1e-12);
  EXPECT_EQ(verdict->first_steps_tolerance, 1e-5);
  EXPECT_EQ(judge(task_in(DType::float64), result_with(0.5), result_with(0.5), never)
                ->first_steps_tolerance,
            1e-12);
}

TEST(Verdict, MeasuresByTheLargestWeight) {
  const auto verdict =
      judge(task_in(DType::float32), result_with(400), result_with(400 + 3e-3), never);
  EXPECT_EQ(verdict->first_steps_tolerance, 400 * 1e-5);
  EXPECT_TRUE(verdict->equal());
}

TEST(Verdict, AcceptsADifferenceThatIsGoneInFloat64) {
  const auto repeat = [](DType dtype, std::size_t num_steps) {
    EXPECT_EQ(dtype, DType::float64);
    EXPECT_EQ(num_steps, 20u);
    return 2e-13;
  };
  EXPECT_TRUE(
      judge(task_in(DType::float32), result_with(0.5), result_with(0.501), repeat)->equal());
}

TEST(Verdict, RejectsADifferenceThatStaysInFloat64) {
  const auto verdict = judge(task_in(DType::float32), result_with(0.5), result_with(0.501),
                             [](DType, std::size_t) { return 9e-4; });
  ASSERT_FALSE(verdict->equal());
  EXPECT_EQ(verdict->failure->text(),
            "first steps: step 19, rank 0, parameter 0.weight: after 20 steps it differs from one "
            "device's by 0.001, limit 1e-05; in float64 by 0.0009, so it is not rounding");
}

// Rounding is 5e8 times larger in float32; a fault is not.
TEST(Verdict, ProvesFloat64InFloat32) {
  const TrainingTask task = task_in(DType::float64);
  const TrainingResult row = result_with(0.5 + 1e-10);
  EXPECT_TRUE(judge(task, result_with(0.5), row, [](DType, std::size_t) { return 0.01; })->equal());
  EXPECT_FALSE(
      judge(task, result_with(0.5), row, [](DType, std::size_t) { return 1e-9; })->equal());
}

TEST(Verdict, ANanDiffers) {
  const auto verdict = judge(task_in(DType::float32), result_with(0.5), result_with(kNan), never);
  ASSERT_FALSE(verdict->equal());
  EXPECT_THAT(verdict->failure->what, HasSubstr("by nan"));
}

TEST(Verdict, BitwiseRowsMayNotDifferAtAllFromFirstToLast) {
  TrainingTask task = task_in(DType::float32);
  task.summation = Summation::bitwise;
  EXPECT_TRUE(judge(task, result_with(0.5), result_with(0.5), never)->equal());
  EXPECT_EQ(judge(task, result_with(0.5), result_with(0.5 + 1e-15), never)->failure->check,
            "first steps");
  TrainingResult later = result_with(0.5);
  later.weights[0].second.fill(0.5 + 1e-15);
  EXPECT_EQ(judge(task, result_with(0.5), later, never)->failure->check, "bits");
}

TEST(Verdict, KeepsTheFailureOfACheckInsideTheRun) {
  TrainingResult row = result_with(0.9);
  row.findings->failure = {"gradients", 938, 2, "4.bias", "relative error 0.3"};
  const auto verdict = judge(task_in(DType::float32), result_with(0.5), row, never);
  EXPECT_EQ(verdict->failure->text(),
            "gradients: step 938, rank 2, parameter 4.bias: relative "
            "error 0.3");
}

TEST(Verdict, DoesNotJudgeTheTorchSamplerUnlessReplicasDiffer) {
  TrainingTask task = task_in(DType::float32);
  task.sampler = Sampler::torch;
  TrainingResult row = result_with(0.9);
  EXPECT_FALSE(judge(task, result_with(0.5), row, never).has_value());
  row.findings->failure = {"replicas", 0, 1, "0.bias", "differs"};
  EXPECT_FALSE(judge(task, result_with(0.5), row, never)->equal());
}

TEST(VerdictLines, SayThatDriftIsNotJudged) {
  TrainingTask task = task_in(DType::float32);
  task.num_steps = 23450;
  Verdict verdict;
  verdict.first_steps_tolerance = 1e-5;
  verdict.gradient_limit = 1e-5;
  verdict.gradient_checks = {{0, 2e-7}, {938, 3e-7}};
  EXPECT_THAT(verdict_lines(task, {verdict}, 0.437),
              ElementsAre("verdict: every row trains as one device does",
                          HasSubstr("weights after 20 steps"),
                          HasSubstr("2 gradients on the same weights and rows: within 3.0e-07"),
                          HasSubstr("drift: weights differ by up to 0.437 after 23,450 steps"),
                          HasSubstr("--explain-drift"), HasSubstr("--bitwise")));
  for (const std::string& line : verdict_lines(task, {verdict}, 0.437)) {
    EXPECT_LE(line.size(), 80u) << line;
  }
}

TEST(DriftSentence, TellsRoundingFromWhatStays) {
  EXPECT_EQ(drift_sentence({{0, 0}}), "no row drifted");
  EXPECT_THAT(drift_sentence({{0.4, 1e-15}, {0.1, 1e-12}}), HasSubstr("it is rounding"));
  EXPECT_THAT(drift_sentence({{0.4, 0.3}}), HasSubstr("float64 drifts too"));
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
