#include "engine/trace/chrome_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "tests/engine/trace/trace_steps.h"

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

// JSON's microseconds back in whole nanoseconds.
std::int64_t nanoseconds(const json& microseconds) {
  return std::llround(microseconds.get<double>() * 1000);
}

TEST(ChromeTrace, SpansOfAThreadNeverOverlap) {
  const Recording recording = two_ranks_three_steps();
  const json trace = written(recording);
  std::map<std::pair<int, int>, std::int64_t> end_of_thread;
  for (const json& event : events_of(trace, "X")) {
    std::int64_t& end = end_of_thread[{event.at("pid"), event.at("tid")}];
    EXPECT_GE(nanoseconds(event.at("ts")), end) << event;
    end = nanoseconds(event.at("ts")) + nanoseconds(event.at("dur"));
  }
  EXPECT_EQ(events_of(trace, "X").size(), recording.spans.size());
  EXPECT_EQ(end_of_thread.size(), 2u * 5u) << "steps, host, compute, compute ops and comm per rank";
}

TEST(ChromeTrace, FlowsRunForwardInTimeWithAllPointsInsideSpans) {
  const Recording recording = two_ranks_three_steps();
  const json trace = written(recording);
  const std::vector<json> spans = events_of(trace, "X");
  std::map<std::int64_t, std::string> phases_of_flow;
  std::map<std::int64_t, std::int64_t> time_of_flow;
  std::int64_t last_id = 0;
  for (const json& event : trace.at("traceEvents")) {
    const std::string phase = event.at("ph");
    if (phase != "s" && phase != "t" && phase != "f") {
      continue;
    }
    EXPECT_EQ(event.at("bp"), "e");
    const std::int64_t id = event.at("id");
    const std::int64_t time = nanoseconds(event.at("ts"));
    if (phase == "s") {
      EXPECT_EQ(id, last_id + 1) << "flows are numbered in order";
      last_id = id;
    }
    EXPECT_GE(time, time_of_flow[id]);
    time_of_flow[id] = time;
    phases_of_flow[id] += phase;
    std::size_t num_around = 0;
    for (const json& span : spans) {
      if (span.at("pid") == event.at("pid") && span.at("tid") == event.at("tid") &&
          nanoseconds(span.at("ts")) <= time &&
          time < nanoseconds(span.at("ts")) + nanoseconds(span.at("dur"))) {
        ++num_around;
      }
    }
    EXPECT_EQ(num_around, 1u) << event;
  }
  EXPECT_EQ(phases_of_flow.size(), 2u * 3u * 2u);
  for (const auto& [id, phases] : phases_of_flow) {
    EXPECT_EQ(phases, "stf") << id;
  }
}

TEST(ChromeTrace, LeavesOutFlowsThatLostTheirSpans) {
  Recording recording = two_ranks_three_steps();
  std::erase_if(recording.spans, [](const Span& span) { return span.category == Category::op; });
  EXPECT_EQ(events_of(written(recording), "s").size(), 12u) << "all-reduce to optimizer remain";
  std::erase_if(recording.spans, [](const Span& span) { return span.lane == Lane::comm; });
  EXPECT_TRUE(events_of(written(recording), "s").empty()) << "one point makes no arrow";
}

TEST(ChromeTrace, NamesProcessesAndThreads) {
  const json trace = written(two_ranks_three_steps(), {.process_names = {{1, "cpu:1"}}});
  std::map<int, std::string> process_names;
  std::set<int> threads;
  std::set<std::string> thread_names;
  for (const json& event : events_of(trace, "M")) {
    if (event.at("name") == "process_name") {
      process_names[event.at("pid")] = event.at("args").at("name");
    } else if (event.at("name") == "thread_name") {
      EXPECT_TRUE(threads.insert(event.at("tid").get<int>()).second)
          << "thread numbers are unique over all processes";
      thread_names.insert(event.at("args").at("name").get<std::string>());
    }
  }
  EXPECT_EQ(process_names, (std::map<int, std::string>{{0, "rank 0"}, {1, "cpu:1"}}));
  EXPECT_THAT(thread_names,
              ::testing::UnorderedElementsAre("steps", "host", "compute", "compute ops", "comm"));
  for (const json& event : events_of(trace, "X")) {
    EXPECT_EQ(threads.count(event.at("tid").get<int>()), 1u);
  }
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
                             .id = 2,
                             .thread = 3,
                             .lane = Lane::comm,
                             .category = Category::communication});
  std::ostringstream out;
  write_chrome_trace(out, recording);
  EXPECT_THAT(out.str(),
              ::testing::HasSubstr(
                  R"("ts":1234.567,"dur":1.005,"args":{"bytes":64,"sequence":0,"thread":3})"));
  EXPECT_THAT(out.str(), ::testing::HasSubstr(R"("ts":0.000,"dur":0.001,"args":{})"));
  const json shifted = written(recording, {.origin_ns = 9'000'000'000'000'000});
  EXPECT_EQ(nanoseconds(events_of(shifted, "X")[0].at("ts")), 1);
}

TEST(ChromeTrace, EscapesNames) {
  const std::string name = "quote \" backslash \\ newline \n tab \t bell \x07 e-acute \xc3\xa9";
  Recording recording;
  recording.spans.push_back({.name = name.c_str(), .begin_ns = 0, .end_ns = 5, .id = 1});
  recording.spans.push_back({.name = "not UTF-8: \xff", .begin_ns = 5, .end_ns = 9, .id = 2});
  const auto spans = events_of(written(recording), "X");
  EXPECT_EQ(spans.at(0).at("name"), name);
  EXPECT_EQ(spans.at(1).at("name"), "not UTF-8: \xef\xbf\xbd");
}

TEST(ChromeTrace, DrawsMemoryAndBytesInFlightOfEachRank) {
  Recording recording = two_ranks_three_steps();
  const std::int64_t begin = 5000 * 1001;
  recording.memory = {{begin, 4096, 0}, {begin + 1500, 512, 1}, {begin + 2500, 1024, 0}};
  const json trace = written(recording);
  std::set<int> threads_of_rank_1;
  for (const json& event : events_of(trace, "X")) {
    if (event.at("pid") == 1) threads_of_rank_1.insert(event.at("tid").get<int>());
  }
  using Values = std::vector<std::pair<std::int64_t, std::int64_t>>;
  std::map<std::pair<int, std::string>, Values> counters;
  for (const json& event : events_of(trace, "C")) {
    counters[{event.at("pid"), event.at("name")}].emplace_back(nanoseconds(event.at("ts")),
                                                               event.at("args").at("value"));
    EXPECT_EQ(event.at("args").size(), 1u) << "of several values viewers stack up";
    if (event.at("pid") != 1) continue;
    EXPECT_EQ(threads_of_rank_1.count(event.at("tid").get<int>()), 1u);
  }
  EXPECT_EQ((counters[{0, "memory (bytes)"}]), (Values{{0, 4096}, {2500, 1024}}));
  EXPECT_EQ((counters[{1, "memory (bytes)"}]), (Values{{1500, 512}}));
}

TEST(ChromeTrace, OfNothingIsAnEmptyList) {
  EXPECT_TRUE(written({}).at("traceEvents").empty());
}

TEST(ChromeTrace, SaysHowMuchWasDropped) {
  Recording recording = two_ranks_three_steps();
  EXPECT_FALSE(written(recording).contains("droppedEvents"));
  recording.num_dropped = 17;
  EXPECT_EQ(written(recording).at("droppedEvents"), 17);
}

TEST(ChromeTrace, WhatWasRecordedLiveIsWritten) {
  start();
  {
    ScopedSpan step(Lane::host, Category::step, "step");
    {
      ScopedSpan op(Lane::compute, Category::op, "op");
      op.pass_flow(1);
    }
    ScopedSpan optimizer(Lane::compute, Category::optimizer, "sgd");
    optimizer.pass_flow(1);
  }
  stop();
  const json trace = written(collect());
  EXPECT_EQ(events_of(trace, "X").size(), 3u);
  EXPECT_EQ(events_of(trace, "s").size(), 1u);
  EXPECT_EQ(events_of(trace, "f").size(), 1u);
}

TEST(ChromeTrace, IsSavedToAFileOrSaysWhyNot) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "lockstep_chrome_trace.json";
  save_chrome_trace(path, two_ranks_three_steps());
  std::ifstream file(path);
  EXPECT_TRUE(json::parse(file).contains("traceEvents"));
  std::filesystem::remove(path);
  try {
    save_chrome_trace("/no/such/folder/trace.json", {});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::Io);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("/no/such/folder"));
  }
}

}  // namespace
}  // namespace lockstep::trace
