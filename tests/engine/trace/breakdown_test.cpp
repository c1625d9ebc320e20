#include "engine/trace/breakdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::trace {
namespace {

constexpr double kNanosecond = 1e-9;
constexpr double kRounding = 1e-15;  // far below a nanosecond

Span span_of(Category category, std::int64_t begin_ns, std::int64_t end_ns,
             Lane lane = Lane::compute, std::uint32_t thread = 0) {
  return {.name = "span",
          .begin_ns = begin_ns,
          .end_ns = end_ns,
          .rank = 0,
          .thread = thread,
          .lane = lane,
          .category = category};
}

StepBreakdown only_step(const std::vector<Span>& spans) {
  const auto breakdown = median_step(spans, 0);
  EXPECT_TRUE(breakdown.has_value());
  double sum = 0;
  for (const BreakdownFigure& part : kBreakdownParts) sum += *breakdown.*part.seconds;
  EXPECT_NEAR(sum, breakdown->step, kRounding) << "the parts add up";
  return *breakdown;
}

using S = StepBreakdown;

void expect_parts(const std::vector<Span>& spans,
                  const std::vector<std::pair<double S::*, int>>& nanoseconds) {
  const StepBreakdown found = only_step(spans);
  for (const auto& [part, expected] : nanoseconds) {
    EXPECT_NEAR(found.*part, expected * kNanosecond, kRounding);
  }
}

TEST(Breakdown, OfAGpuIsOfItsOwnStep) {
  const auto on_device = [](Category category, std::int64_t begin_ns, std::int64_t end_ns,
                            Lane lane = Lane::compute) {
    return span_of(category, begin_ns, end_ns, lane, kDeviceThread);
  };
  std::vector<Span> spans{span_of(Category::step, 0, 50, Lane::host),
                          span_of(Category::forward, 0, 20),
                          on_device(Category::step, 100, 1100, Lane::host),
                          on_device(Category::forward, 100, 400),
                          on_device(Category::backward, 400, 800),
                          on_device(Category::communication, 500, 900, Lane::comm),
                          on_device(Category::communication, 800, 900),
                          on_device(Category::optimizer, 900, 1050)};
  Span other = on_device(Category::optimizer, 100, 1100);  // of another device
  other.rank = 1;
  spans.push_back(other);
  expect_parts(spans, {{&S::step, 1000},
                       {&S::forward, 300},
                       {&S::backward, 400},
                       {&S::exposed_comm, 100},
                       {&S::optimizer, 150},
                       {&S::unattributed, 50},
                       {&S::overlapped_comm, 300}});
}

TEST(Breakdown, GivesEachPhaseItsTime) {
  expect_parts(
      {span_of(Category::step, 100, 1100, Lane::host),
       span_of(Category::data, 110, 150, Lane::host), span_of(Category::copy, 150, 160, Lane::copy),
       span_of(Category::forward, 160, 400), span_of(Category::backward, 400, 900),
       span_of(Category::communication, 900, 1000, Lane::comm),
       span_of(Category::optimizer, 1000, 1050), span_of(Category::wait, 1050, 1070, Lane::host),
       span_of(Category::host, 1075, 1100, Lane::host)},
      {{&S::data, 40},
       {&S::copy, 10},
       {&S::forward, 240},
       {&S::backward, 500},
       {&S::exposed_comm, 100},
       {&S::optimizer, 50},
       {&S::wait, 20},
       {&S::host, 25},
       {&S::unattributed, 15},
       {&S::step, 1000},
       {&S::overlapped_comm, 0}});
}

TEST(Breakdown, AWaitInsideBackwardIsTakenFromBackward) {
  expect_parts({span_of(Category::step, 0, 100), span_of(Category::backward, 0, 100),
                span_of(Category::communication, 60, 90, Lane::host),
                span_of(Category::host, 70, 75, Lane::host)},
               {{&S::backward, 70}, {&S::exposed_comm, 25}, {&S::host, 5}, {&S::unattributed, 0}});
}

TEST(Breakdown, OpsBelongToThePhaseAroundThem) {
  expect_parts({span_of(Category::step, 0, 100), span_of(Category::forward, 0, 50),
                span_of(Category::op, 10, 40), span_of(Category::op, 60, 80)},
               {{&S::forward, 50}, {&S::unattributed, 50}});
}

TEST(Breakdown, CommunicationIsOverlappedOnlyWhileTheDeviceComputes) {
  expect_parts(
      {
          span_of(Category::step, 0, 100), span_of(Category::backward, 0, 60),
          span_of(Category::communication, 60, 80, Lane::host),      // the wait
          span_of(Category::communication, 20, 40, Lane::comm, 1),   // hidden
          span_of(Category::communication, 30, 78, Lane::comm, 2),   // two at once; exposed from 60
          span_of(Category::communication, 95, 130, Lane::comm, 1),  // nobody computes or waits
      },
      {{&S::backward, 60}, {&S::exposed_comm, 20}, {&S::comm, 58 + 5}, {&S::overlapped_comm, 40}});
}

TEST(Breakdown, OtherThreadsDoNotCoverTheStep) {
  expect_parts(
      {span_of(Category::step, 0, 100), span_of(Category::data, 0, 100, Lane::host, 1),
       span_of(Category::forward, 0, 30, Lane::compute, 2), span_of(Category::forward, 0, 20)},
      {{&S::data, 0}, {&S::forward, 20}, {&S::unattributed, 80}});
}

TEST(Breakdown, MedianIsARealStepOfTheRank) {
  std::vector<Span> spans = {span_of(Category::step, 0, 900), span_of(Category::step, 1000, 1010),
                             span_of(Category::step, 2000, 2050),
                             span_of(Category::step, 3000, 3040)};
  Span other_rank = span_of(Category::step, 0, 41);
  other_rank.rank = 1;
  spans.push_back(other_rank);
  spans.push_back(span_of(Category::forward, 3000, 3030));
  const Span* step = median_step_span(spans, 0);
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->begin_ns, 3000) << "of 10, 40, 50, 900 the shorter of the middle two";
  EXPECT_NEAR(median_step(spans, 0)->forward, 30 * kNanosecond, kRounding);
}

TEST(StepBreakdowns, ASpanAroundSeveralStepsReachesIntoEach) {
  std::vector<Span> spans{span_of(Category::host, 0, 150)};
  for (const std::int64_t begin : {0, 100, 200}) {
    spans.push_back(span_of(Category::step, begin, begin + 100, Lane::host));
  }
  const std::vector<StepBreakdown> steps = step_breakdowns(spans, 0);
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_NEAR(steps[0].host, 100e-9, 1e-15);
  EXPECT_NEAR(steps[1].host, 50e-9, 1e-15);
  EXPECT_NEAR(steps[2].host, 0, 1e-15);
}

TEST(Breakdown, SecondsAreWrittenInTheirUnit) {
  EXPECT_EQ(format_seconds(0), "0 ns");
  EXPECT_EQ(format_seconds(412e-9), "412 ns");
  EXPECT_EQ(format_seconds(999.9e-9), "1 us");
  EXPECT_EQ(format_seconds(12.34e-6), "12.3 us");
  EXPECT_EQ(format_seconds(999.6e-6), "1 ms");
  EXPECT_EQ(format_seconds(4.56e-3), "4.56 ms");
  EXPECT_EQ(format_seconds(1.234), "1.23 s");
  EXPECT_EQ(format_seconds(4321.4), "4321 s");
}

}  // namespace
}  // namespace lockstep::trace
