#include "tools/report/step_statistics.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::tools {
namespace {

TEST(StepStatistics, TakeEachFigureForItself) {
  std::vector<trace::StepBreakdown> steps(10);
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
  trace::StepBreakdown only;
  only.step = 3;
  EXPECT_EQ(step_statistics({only}).median.step, 3);
  EXPECT_EQ(step_statistics({only}).p90.step, 3);
}

TEST(StepStatistics, PartsOfATypicalStepRelateAsTheirMediansAndAddUp) {
  trace::StepBreakdown step;
  step.step = 9;
  step.forward = 9;
  step.sequence = 4;
  trace::StepBreakdown medians;
  medians.step = 8;
  medians.forward = 2;
  medians.backward = 4;
  const trace::StepBreakdown typical = typical_step(step, medians);
  EXPECT_EQ(typical.forward, 3);
  EXPECT_EQ(typical.backward, 6);
  EXPECT_EQ(typical.step, 9);
  EXPECT_EQ(typical.sequence, 4);
  EXPECT_EQ(typical_step(step, {}).forward, 9) << "of no medians it is the step";
}

TEST(StepStatistics, OverlapIsTheShareOfCommunicationThatComputingHides) {
  const std::vector<trace::Span> spans{
      {.begin_ns = 0, .end_ns = 990, .category = trace::Category::step},
      {.begin_ns = 200, .end_ns = 600, .category = trace::Category::backward},
      {.begin_ns = 410,
       .end_ns = 700,
       .thread = 1,
       .lane = trace::Lane::comm,
       .category = trace::Category::communication}};
  const auto overlap = comm_overlap(trace::step_breakdowns(spans, 0));
  ASSERT_TRUE(overlap.has_value());
  EXPECT_NEAR(*overlap, 190.0 / 290, 1e-12) << "from 410 to 600 of 410 to 700 backward goes on";
  EXPECT_FALSE(comm_overlap(trace::step_breakdowns(spans, 7)).has_value());
}

}  // namespace
}  // namespace lockstep::tools
