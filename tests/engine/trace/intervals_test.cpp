#include "engine/trace/breakdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::trace {

void PrintTo(const Interval& interval, std::ostream* out) {
  *out << "[" << interval.begin_ns << ", " << interval.end_ns << ")";
}

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Intervals, UnionJoinsWhatOverlapsOrTouches) {
  EXPECT_THAT(union_of({{5, 8}, {0, 2}, {2, 3}, {6, 10}, {6, 7}, {20, 21}}),
              ElementsAre(Interval{0, 3}, Interval{5, 10}, Interval{20, 21}));
}

TEST(Intervals, IntersectionKeepsWhatBothCover) {
  const IntervalSet a = {{0, 10}, {20, 30}, {40, 50}};
  const IntervalSet b = {{5, 22}, {25, 26}, {30, 40}, {49, 60}};
  const IntervalSet common = {{5, 10}, {20, 22}, {25, 26}, {49, 50}};
  EXPECT_EQ(intersection_of(a, b), common);
  EXPECT_EQ(intersection_of(b, a), common);
  EXPECT_THAT(intersection_of(a, {}), IsEmpty());
}

TEST(Intervals, BusyTimeIsTheUnionOfOneLane) {
  const std::vector<Span> spans = {
      {.name = "a", .begin_ns = 0, .end_ns = 10, .rank = 1, .lane = Lane::compute},
      {.name = "b", .begin_ns = 5, .end_ns = 12, .rank = 1, .lane = Lane::compute},
      {.name = "late", .begin_ns = 90, .end_ns = 120, .rank = 1, .lane = Lane::compute},
      {.name = "other lane", .begin_ns = 20, .end_ns = 30, .rank = 1, .lane = Lane::comm},
      {.name = "other rank", .begin_ns = 40, .end_ns = 50, .rank = 0, .lane = Lane::compute},
      {.name = "step",
       .begin_ns = 0,
       .end_ns = 100,
       .rank = 1,
       .lane = Lane::compute,
       .category = Category::step}};
  EXPECT_THAT(busy_time(spans, 1, Lane::compute, {2, 100}),
              ElementsAre(Interval{2, 12}, Interval{90, 100}));
}

TEST(Intervals, PartInsideIsClippedToTheWindow) {
  const IntervalSet set{{0, 10}, {20, 30}, {40, 50}};
  EXPECT_EQ(part_inside(set, {5, 42}), (IntervalSet{{5, 10}, {20, 30}, {40, 42}}));
  EXPECT_EQ(part_inside(set, {10, 20}), IntervalSet{});
  EXPECT_EQ(part_inside(set, {25, 26}), (IntervalSet{{25, 26}}));
  EXPECT_EQ(part_inside({}, {0, 5}), IntervalSet{});
}

}  // namespace
}  // namespace lockstep::trace
