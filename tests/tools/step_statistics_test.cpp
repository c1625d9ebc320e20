#include "tools/run/step_statistics.h"

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
  EXPECT_EQ(statistics.median_seconds.step, 5)
      << "of an even number, the smaller of the middle two";
  EXPECT_EQ(statistics.median_seconds.forward, 5);
  EXPECT_EQ(statistics.p90_seconds.step, 9) << "9 of 10 steps do not exceed it";
  EXPECT_EQ(statistics.p90_seconds.forward, 9);
  EXPECT_EQ(statistics.p90_seconds.backward, 0);
}

TEST(StepStatistics, OfFewStepsAreOneOfThem) {
  EXPECT_EQ(step_statistics({}).num_steps, 0u);
  trace::StepBreakdown only;
  only.step = 3;
  EXPECT_EQ(step_statistics({only}).median_seconds.step, 3);
  EXPECT_EQ(step_statistics({only}).p90_seconds.step, 3);
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

// --- how busy a device was, on recordings made by hand ---

using trace::Category;
using trace::Lane;

struct Spans {
  trace::Recording recording;

  trace::Span& add(int track, std::int64_t begin, std::int64_t end, Lane lane, Category category) {
    recording.spans.push_back({.begin_ns = begin,
                               .end_ns = end,
                               .rank = track,
                               .thread = static_cast<std::uint32_t>(track),
                               .lane = lane,
                               .category = category});
    return recording.spans.back();
  }
  void step(int track, std::int64_t begin, std::int64_t end) {
    add(track, begin, end, Lane::host, Category::step);
  }
};

TEST(BusyFraction, CountsTheCpuTimeOfComputationNotItsWallTime) {
  Spans spans;
  spans.step(0, 0, 100);
  spans.add(0, 0, 100, Lane::compute, Category::forward).cpu_ns = 25;
  EXPECT_EQ(busy_fraction(spans.recording, 0), 0.25);
}

TEST(BusyFraction, SpinningInAWaitIsNotComputing) {
  Spans spans;
  spans.step(0, 0, 100);
  spans.add(0, 0, 80, Lane::compute, Category::backward).cpu_ns = 80;
  spans.add(0, 30, 60, Lane::host, Category::wait).cpu_ns = 30;
  EXPECT_EQ(busy_fraction(spans.recording, 0), 0.5);
}

TEST(BusyFraction, SpansWithoutCpuTimeAreInsideOthersAndCountNothing) {
  Spans spans;
  spans.step(0, 0, 100);
  spans.add(0, 0, 60, Lane::compute, Category::forward).cpu_ns = 60;
  spans.add(0, 0, 60, Lane::compute, Category::op);
  spans.add(0, 60, 100, Lane::comm, Category::communication);
  EXPECT_EQ(busy_fraction(spans.recording, 0), 0.6);
}

TEST(BusyFraction, WhatIsOutsideOfStepsDoesNotCount) {
  Spans spans;
  spans.step(0, 100, 200);
  spans.step(0, 300, 400);
  spans.add(0, 0, 50, Lane::compute, Category::op).cpu_ns = 50;      // before
  spans.add(0, 150, 250, Lane::compute, Category::op).cpu_ns = 100;  // half of it inside
  spans.add(0, 390, 400, Lane::compute, Category::op).cpu_ns = 10;
  EXPECT_EQ(busy_fraction(spans.recording, 0), 0.3);
}

TEST(BusyFraction, OfAGpuIsTheTimeOfItsOwnSpans) {
  Spans spans;
  spans.step(0, 0, 1000);  // the host's, which goes on
  spans.add(0, 0, 900, Lane::compute, Category::forward).cpu_ns = 900;
  const auto on_device = [&](std::int64_t begin, std::int64_t end, Lane lane, Category category) {
    spans.add(0, begin, end, lane, category).thread = trace::kDeviceThread;
  };
  on_device(0, 200, Lane::host, Category::step);
  on_device(0, 150, Lane::compute, Category::forward);
  on_device(100, 150, Lane::compute, Category::wait);
  on_device(0, 200, Lane::comm, Category::communication);
  EXPECT_EQ(busy_fraction(spans.recording, 0), 0.5);
}

}  // namespace
}  // namespace lockstep::tools
