#include "engine/trace/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::trace {
namespace {

using ::testing::ElementsAre;

Span span_of(Lane lane, Category category, std::int64_t begin_ns, std::int64_t end_ns,
             int rank = 0) {
  return {.name = "span",
          .begin_ns = begin_ns,
          .end_ns = end_ns,
          .rank = rank,
          .lane = lane,
          .category = category};
}

std::vector<std::string> names_of(const std::vector<TimelineRow>& rows) {
  std::vector<std::string> names;
  for (const TimelineRow& row : rows) {
    names.push_back(std::to_string(row.rank) + " " + row.name);
  }
  return names;
}

TEST(Timeline, HasARowPerLaneAndOneForItsOps) {
  const auto rows = timeline_of(
      {span_of(Lane::comm, Category::communication, 20, 30),
       span_of(Lane::compute, Category::forward, 0, 50),
       span_of(Lane::compute, Category::op, 10, 20), span_of(Lane::compute, Category::op, 20, 30),
       span_of(Lane::host, Category::step, 0, 60), span_of(Lane::host, Category::wait, 5, 6, 1)});
  EXPECT_THAT(names_of(rows),
              ElementsAre("0 steps", "0 compute", "0 compute ops", "0 comm", "1 host"));
  EXPECT_EQ(rows[2].spans.size(), 2u);
}

TEST(Timeline, NestedSpansStandALevelBelowWhatSurroundsThem) {
  const auto rows = timeline_of({span_of(Lane::compute, Category::backward, 10, 20),
                                 span_of(Lane::compute, Category::forward, 0, 50),
                                 span_of(Lane::compute, Category::forward, 0, 5),
                                 span_of(Lane::compute, Category::optimizer, 50, 60)});
  ASSERT_THAT(names_of(rows), ElementsAre("0 compute", "0 compute, level 2"));
  ASSERT_EQ(rows[0].spans.size(), 2u);
  EXPECT_EQ(rows[0].spans[0].end_ns, 50);
  EXPECT_EQ(rows[0].spans[1].category, Category::optimizer);
  EXPECT_EQ(rows[1].spans[0].end_ns, 5);
}

TEST(Timeline, NoSpansOfARowOverlapWhateverTheInput) {
  std::vector<Span> spans;
  std::uint32_t state = 1;
  const auto next = [&](std::uint32_t bound) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % bound;
  };
  for (std::size_t i = 0; i < 500; ++i) {
    const std::int64_t begin_ns = next(1000);
    spans.push_back(span_of(static_cast<Lane>(next(4)), static_cast<Category>(next(10)), begin_ns,
                            begin_ns + next(40), static_cast<int>(next(3))));
  }
  std::size_t num_spans = 0;
  for (const TimelineRow& row : timeline_of(spans)) {
    num_spans += row.spans.size();
    for (std::size_t i = 1; i < row.spans.size(); ++i) {
      EXPECT_LE(row.spans[i - 1].end_ns, row.spans[i].begin_ns) << row.name;
    }
  }
  EXPECT_EQ(num_spans, spans.size());
}

TEST(Timeline, GivesWhatAGpuTimedItselfRowsOfItsOwnBelowTheHosts) {
  Span enqueued{.name = "forward", .begin_ns = 0, .end_ns = 10, .category = Category::forward};
  Span computed{.name = "forward", .begin_ns = 5, .end_ns = 50, .category = Category::forward};
  computed.thread = kDeviceThread;
  Span step = computed;
  step.lane = Lane::host;
  step.category = Category::step;
  std::vector<std::string> names;
  for (const TimelineRow& row : timeline_of({computed, enqueued, step})) names.push_back(row.name);
  EXPECT_EQ(names, (std::vector<std::string>{"compute", "GPU steps", "GPU compute"}));
}

}  // namespace
}  // namespace lockstep::trace
