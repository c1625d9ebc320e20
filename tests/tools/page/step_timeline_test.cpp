// One step out of a timeline file: whose time was whose, and what communication was hidden.
#include "tools/page/step_timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"
#include "tests/tools/page/sample_run.h"
#include "tools/page/page.h"

namespace lockstep::tools::page {
namespace {

class Timeline : public ::testing::Test {
 protected:
  testing::TempFolder folder_;
};

// As sample_trace(), with who did what: all of it one thread, or communication another one.
nlohmann::ordered_json trace_with_threads(int comm_thread) {
  auto events = nlohmann::ordered_json::parse(testing::sample_trace());
  for (auto& event : events["traceEvents"]) {
    if (event["ph"] != "X" || event["cat"] == "op") continue;
    event["args"]["thread"] = event["cat"] == "communication" ? comm_thread : 0;
  }
  return events;
}

double seconds_of(const Lane& lane, std::string_view category) {
  double total = 0;
  for (const LaneSpan& span : lane.spans) {
    if (span.category == category) total += span.end - span.begin;
  }
  return total;
}

// Forward 2 ms, backward 3 ms, in it from 3 to 4.5 ms an all-reduce and from 4 to 4.5 ms a wait.
TEST_F(Timeline, ATimelineTellsHiddenCommunicationFromExposed) {
  testing::write_text(folder_ / "t.json", trace_with_threads(0).dump());
  StepTimeline timeline = read_step_timeline(folder_ / "t.json", "test");
  const std::vector<Lane>* lanes = &timeline.ranks[0].lanes;
  EXPECT_NEAR(seconds_of((*lanes)[0], "backward"), 0.0015, 1e-9) << "what the thread computed";
  EXPECT_NEAR(seconds_of((*lanes)[1], kHiddenComm), 0, 1e-9);
  testing::write_text(folder_ / "t.json", trace_with_threads(1).dump());
  timeline = read_step_timeline(folder_ / "t.json", "test");
  lanes = &timeline.ranks[0].lanes;
  EXPECT_NEAR(seconds_of((*lanes)[0], "backward"), 0.0025, 1e-9);
  EXPECT_NEAR(seconds_of((*lanes)[1], kHiddenComm), 0.001, 1e-9);
  EXPECT_NEAR(seconds_of((*lanes)[1], "communication"), 0.0005, 1e-9) << "while it waits";
}

TEST_F(Timeline, NamesItsRowAndNumbersItsBuckets) {
  testing::write_text(folder_ / "t.json", testing::sample_trace());
  testing::write_json_file(folder_ / "out.json", testing::sample_run());
  const PageRun run = load_run(folder_ / "out.json", folder_ / "t.json", "test");
  EXPECT_EQ(run.timeline->row, "ddp x2");
  EXPECT_EQ(run.timeline->ranks[0].lanes[1].spans[0].bucket, 0) << "its only all-reduce";
  EXPECT_EQ(run.timeline->ranks[0].lanes[0].spans[0].bucket, -1);
}

TEST_F(Timeline, APredictedTimelineNeedsNoNumberOfItsStep) {
  const auto event = [](const char* category, int row, double begin, double end) {
    return nlohmann::ordered_json{
        {"ph", "X"},
        {"cat", category},
        {"name", std::string(category) == "step" ? "predicted step" : "work"},
        {"pid", 0},
        {"tid", row},
        {"ts", begin},
        {"dur", end - begin},
        {"args", {{"thread", 0}}}};
  };
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  for (const auto& [row, name] : {std::pair(2, "compute"), std::pair(3, "comm")}) {
    events.push_back({{"ph", "M"},
                      {"name", "thread_name"},
                      {"pid", 0},
                      {"tid", row},
                      {"args", {{"name", name}}}});
  }
  events.push_back(event("step", 1, 0, 100));
  events.push_back(event("backward", 2, 10, 60));
  events.push_back(event("communication", 3, 40, 90));
  testing::write_text(folder_ / "t.json", nlohmann::ordered_json({{"traceEvents", events}}).dump());
  const StepTimeline timeline = read_step_timeline(folder_ / "t.json", "test");
  EXPECT_TRUE(timeline.is_predicted);
  ASSERT_EQ(timeline.ranks[0].lanes.size(), 2u);
  EXPECT_NEAR(seconds_of(timeline.ranks[0].lanes[0], "backward"), 50e-6, 1e-9);
  EXPECT_NEAR(seconds_of(timeline.ranks[0].lanes[1], kHiddenComm), 20e-6, 1e-9);
  EXPECT_NEAR(seconds_of(timeline.ranks[0].lanes[1], "communication"), 30e-6, 1e-9);
}

}  // namespace
}  // namespace lockstep::tools::page
