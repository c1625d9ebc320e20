#include "engine/trace/chrome_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::trace {
namespace {

using nlohmann::json;

json written(const Recording& recording, const ChromeTraceOptions& options = {}) {
  std::ostringstream out;
  write_chrome_trace(out, recording, options);
  return json::parse(out.str());
}

std::vector<json> events_of(const json& trace, const std::string& phase) {
  std::vector<json> events;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == phase) {
      events.push_back(event);
    }
  }
  return events;
}

// "0 compute ops: 2" for each row of the file: its rank, its name and its number of spans.
std::vector<std::string> rows_of(const Recording& recording) {
  const json trace = written(recording);
  std::map<int, int> num_spans;
  for (const json& event : events_of(trace, "X")) ++num_spans[event.at("tid")];
  std::vector<std::string> rows;
  for (const json& event : events_of(trace, "M")) {
    if (event.at("name") != "thread_name") continue;
    rows.push_back(std::to_string(event.at("pid").get<int>()) + " " +
                   event.at("args").at("name").get<std::string>() + ": " +
                   std::to_string(num_spans[event.at("tid")]));
  }
  return rows;
}

Span span_of(Lane lane, Category category, std::int64_t begin_ns, std::int64_t end_ns,
             int rank = 0) {
  return {.name = "span",
          .begin_ns = begin_ns,
          .end_ns = end_ns,
          .rank = rank,
          .lane = lane,
          .category = category};
}

TEST(ChromeTrace, HasARowPerLane) {
  Recording recording;
  recording.spans = {span_of(Lane::comm, Category::communication, 20, 30),
                     span_of(Lane::compute, Category::forward, 0, 50),
                     span_of(Lane::compute, Category::op, 10, 20),
                     span_of(Lane::compute, Category::op, 20, 30),
                     span_of(Lane::host, Category::step, 0, 60),
                     span_of(Lane::host, Category::wait, 5, 6, 1)};
  EXPECT_THAT(rows_of(recording),
              ::testing::ElementsAre("0 steps: 1", "0 compute: 1", "0 compute ops: 2", "0 comm: 1",
                                     "1 host: 1"));
}

TEST(ChromeTrace, NestedSpansStandALevelBelow) {
  Recording recording;
  recording.spans = {span_of(Lane::compute, Category::backward, 10, 20),
                     span_of(Lane::compute, Category::forward, 0, 50),
                     span_of(Lane::compute, Category::forward, 0, 5),
                     span_of(Lane::compute, Category::optimizer, 50, 60)};
  EXPECT_THAT(rows_of(recording), ::testing::ElementsAre("0 compute: 2", "0 compute, level 2: 2"));
}

TEST(ChromeTrace, GivesAGpusTimesRowsOfTheirOwn) {
  Span computed = span_of(Lane::compute, Category::forward, 5, 50);
  computed.thread = kDeviceThread;
  Span step = span_of(Lane::host, Category::step, 5, 50);
  step.thread = kDeviceThread;
  Recording recording;
  recording.spans = {computed, span_of(Lane::compute, Category::forward, 0, 10), step};
  EXPECT_THAT(rows_of(recording),
              ::testing::ElementsAre("0 compute: 1", "0 GPU steps: 1", "0 GPU compute: 1"));
}

TEST(ChromeTrace, KeepsTimesToTheNanosecondAndArguments) {
  Recording recording;
  recording.spans.push_back(
      {.name = "first", .begin_ns = 9'000'000'000'000'001, .end_ns = 9'000'000'000'000'002});
  recording.spans.push_back({.name = "all_reduce",
                             .begin_ns = 9'000'000'001'234'568,
                             .end_ns = 9'000'000'001'235'573,
                             .num_bytes = 64,
                             .sequence = 0,
                             .thread = 3,
                             .lane = Lane::comm,
                             .category = Category::communication});
  std::ostringstream out;
  write_chrome_trace(out, recording);
  EXPECT_THAT(out.str(),
              ::testing::HasSubstr(
                  R"("ts":1234.567,"dur":1.005,"args":{"bytes":64,"sequence":0,"thread":3})"));
  EXPECT_THAT(out.str(), ::testing::HasSubstr(R"("ts":0.000,"dur":0.001,"args":{})"));
}

}  // namespace
}  // namespace lockstep::trace
