#include "engine/trace/breakdown.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/engine/trace/trace_steps.h"

namespace lockstep::trace {
namespace {

TEST(StepStatistics, TakeEachFigureForItself) {
  std::vector<StepBreakdown> steps(10);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    steps[i].step = static_cast<double>(i + 1);
    steps[i].forward = static_cast<double>(10 - i);
  }
  const StepStatistics statistics = step_statistics(steps);
  EXPECT_EQ(statistics.num_steps, 10u);
  EXPECT_EQ(statistics.median.step, 5) << "of an even number, the smaller of the middle two";
  EXPECT_EQ(statistics.median.forward, 5);
  EXPECT_EQ(statistics.p90.step, 9) << "9 of 10 steps do not exceed it";
  EXPECT_EQ(statistics.p90.forward, 9);
  EXPECT_EQ(statistics.p90.backward, 0);
}

TEST(StepStatistics, OfFewStepsAreOneOfThem) {
  EXPECT_EQ(step_statistics({}).num_steps, 0u);
  StepBreakdown only;
  only.step = 3;
  EXPECT_EQ(step_statistics({only}).median.step, 3);
  EXPECT_EQ(step_statistics({only}).p90.step, 3);
}

TEST(StepStatistics, PartsOfATypicalStepRelateAsTheirMediansAndAddUp) {
  StepBreakdown step;
  step.step = 9;
  step.forward = 9;
  step.sequence = 4;
  StepBreakdown medians;
  medians.step = 8;
  medians.forward = 2;
  medians.backward = 4;
  const StepBreakdown typical = typical_step(step, medians);
  EXPECT_EQ(typical.forward, 3);
  EXPECT_EQ(typical.backward, 6);
  EXPECT_EQ(typical.step, 9);
  EXPECT_EQ(typical.sequence, 4);
  EXPECT_EQ(typical_step(step, {}).forward, 9) << "of no medians it is the step";
}

TEST(StepStatistics, StepsOfARankAreThoseThatAreAlsoFoundOneByOne) {
  const Recording recording = two_ranks_three_steps();
  for (const int rank : {0, 1}) {
    const std::vector<StepBreakdown> steps = step_breakdowns(recording.spans, rank);
    ASSERT_EQ(steps.size(), 3u);
    std::size_t index = 0;
    for (const Span& span : recording.spans) {
      if (span.category != Category::step || span.rank != rank) continue;
      const StepBreakdown expected = step_breakdown(recording.spans, span);
      const StepBreakdown& found = steps[index++];
      EXPECT_EQ(found.sequence, span.sequence);
      EXPECT_EQ(found.rank, rank);
      for (const BreakdownFigure& part : kBreakdownParts) {
        EXPECT_EQ(found.*part.seconds, expected.*part.seconds) << part.name;
      }
      for (const BreakdownFigure& total : kBreakdownTotals) {
        EXPECT_EQ(found.*total.seconds, expected.*total.seconds) << total.name;
      }
    }
  }
}

TEST(StepStatistics, ASpanAroundSeveralStepsReachesIntoEach) {
  std::vector<Span> spans;
  spans.push_back({.name = "log", .begin_ns = 0, .end_ns = 150, .category = Category::host});
  for (const std::int64_t begin : {0, 100, 200}) {
    spans.push_back({.name = "step",
                     .begin_ns = begin,
                     .end_ns = begin + 100,
                     .lane = Lane::host,
                     .category = Category::step});
  }
  const std::vector<StepBreakdown> steps = step_breakdowns(spans, 0);
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_NEAR(steps[0].host, 100e-9, 1e-15);
  EXPECT_NEAR(steps[1].host, 50e-9, 1e-15);
  EXPECT_NEAR(steps[2].host, 0, 1e-15);
}

TEST(StepStatistics, OverlapIsTheShareOfCommunicationThatComputingHides) {
  const Recording recording = two_ranks_three_steps();
  const auto overlap = comm_overlap(step_breakdowns(recording.spans, 0));
  ASSERT_TRUE(overlap.has_value());
  EXPECT_NEAR(*overlap, 190.0 / 290, 1e-12) << "from 410 to 600 of 410 to 700 backward goes on";
  EXPECT_FALSE(comm_overlap(step_breakdowns(recording.spans, 7)).has_value());
}

}  // namespace
}  // namespace lockstep::trace
