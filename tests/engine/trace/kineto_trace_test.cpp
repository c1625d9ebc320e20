#include "engine/trace/kineto_trace.h"

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

#include "tests/engine/trace/trace_steps.h"

namespace lockstep::trace {
namespace {

using nlohmann::json;

std::string text_of_rank(int rank, const KinetoOptions& options = {}) {
  std::ostringstream out;
  write_kineto_trace(out, two_ranks_three_steps(), rank, options);
  return out.str();
}

std::vector<json> events_of(const json& trace, const std::string& category) {
  std::vector<json> events;
  for (const json& event : trace.at("traceEvents")) {
    if (event.value("cat", "") == category) {
      events.push_back(event);
    }
  }
  return events;
}

TEST(KinetoTrace, HasTheTopLevelThatToolsLookFor) {
  const std::string text =
      text_of_rank(1, {.world_size = 2, .backend = "lockstep", .device_name = "cpu:1"});
  const json trace = json::parse(text);
  EXPECT_EQ(trace.at("schemaVersion"), 1);
  EXPECT_EQ(trace.at("distributedInfo"),
            (json{{"backend", "lockstep"}, {"rank", 1}, {"world_size", 2}}));
  EXPECT_EQ(trace.at("deviceProperties").at(0).at("name"), "cpu:1");
  EXPECT_TRUE(trace.contains("baseTimeNanoseconds"));
  EXPECT_THAT(text, ::testing::HasSubstr(R"("rank": 1,)")) << "HTA looks for this, with the blank";
}

TEST(KinetoTrace, StepsPhasesAndOpsHaveKinetosCategories) {
  const json trace = json::parse(text_of_rank(0));
  std::map<std::string, std::size_t> annotations;
  for (const json& event : events_of(trace, "user_annotation")) {
    ++annotations[event.at("name")];
  }
  EXPECT_EQ(annotations["ProfilerStep#0"], 1u);
  EXPECT_EQ(annotations["ProfilerStep#2"], 1u);
  EXPECT_EQ(annotations["forward"], 3u);
  EXPECT_EQ(annotations["all_reduce"], 3u);
  EXPECT_EQ(events_of(trace, "cpu_op").size(), 3u * 4u);
}

TEST(KinetoTrace, DeviceSideHoldsTheInnermostSpansOfEachLane) {
  const json trace = json::parse(text_of_rank(0));
  std::map<std::string, std::set<int>> streams_of_name;
  for (const json& event : events_of(trace, "kernel")) {
    streams_of_name[event.at("name")].insert(event.at("args").at("stream").get<int>());
  }
  EXPECT_EQ(streams_of_name,
            (std::map<std::string, std::set<int>>{{"linear", {7}},
                                                  {"relu", {7}},
                                                  {"linear backward", {7}},
                                                  {"sgd", {7}},
                                                  {"ncclKernel_all_reduce", {20}}}))
      << "forward and backward surround ops, so they are no kernels";
}

TEST(KinetoTrace, EachKernelIsTiedToItsHostEvent) {
  const json trace = json::parse(text_of_rank(0));
  std::map<int, json> host_events;
  for (const json& event : trace.at("traceEvents")) {
    if (event.value("cat", "") == "cpu_op" || event.value("cat", "") == "user_annotation") {
      host_events[event.at("args").at("correlation")] = event;
    }
  }
  for (const json& kernel : events_of(trace, "kernel")) {
    const json& host = host_events.at(kernel.at("args").at("correlation"));
    EXPECT_EQ(host.at("ts"), kernel.at("ts"));
    EXPECT_EQ(host.at("dur"), kernel.at("dur"));
    EXPECT_NE(host.at("pid"), kernel.at("pid"));
  }
}

TEST(KinetoTrace, CopiesAreMemcpysAndDeviceSpansHaveNoHostSide) {
  Recording recording;
  recording.spans.push_back({.name = "scatter",
                             .begin_ns = 0,
                             .end_ns = 9,
                             .id = 1,
                             .lane = Lane::copy,
                             .category = Category::copy});
  recording.spans.push_back({.name = "gemm",
                             .begin_ns = 3,
                             .end_ns = 7,
                             .id = 2,
                             .thread = kDeviceThread,
                             .lane = Lane::compute});
  std::ostringstream out;
  write_kineto_trace(out, recording, 0);
  const json trace = json::parse(out.str());
  ASSERT_EQ(events_of(trace, "gpu_memcpy").size(), 1u);
  EXPECT_EQ(events_of(trace, "gpu_memcpy")[0].at("name"), "Memcpy DtoD (scatter)");
  ASSERT_EQ(events_of(trace, "kernel").size(), 1u);
  EXPECT_FALSE(events_of(trace, "kernel")[0].at("args").contains("correlation"));
  EXPECT_TRUE(events_of(trace, "cpu_op").empty());
}

TEST(KinetoTrace, SpansThatOverlapOnTheDeviceGoToDifferentStreams) {
  Recording recording;
  for (std::uint32_t thread : {0u, 1u}) {
    recording.spans.push_back({.name = "op",
                               .begin_ns = 0,
                               .end_ns = 10,
                               .id = thread + 1,
                               .thread = thread,
                               .lane = Lane::compute});
  }
  std::ostringstream out;
  write_kineto_trace(out, recording, 0);
  std::set<int> streams;
  for (const json& kernel : events_of(json::parse(out.str()), "kernel")) {
    streams.insert(kernel.at("args").at("stream").get<int>());
  }
  EXPECT_EQ(streams, (std::set<int>{7, 8}));
}

TEST(KinetoTrace, IsSavedAsOneFilePerRankOnOneTimeBase) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "lockstep_kineto.json";
  const auto files = save_kineto_traces(path, two_ranks_three_steps(), {.world_size = 2});
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].filename(), "lockstep_kineto.rank0.json");
  EXPECT_EQ(files[1].filename(), "lockstep_kineto.rank1.json");
  std::vector<json> traces;
  for (const auto& file : files) {
    std::ifstream in(file);
    traces.push_back(json::parse(in));
    std::filesystem::remove(file);
  }
  EXPECT_EQ(traces[1].at("distributedInfo").at("rank"), 1);
  EXPECT_EQ(traces[0].at("baseTimeNanoseconds"), traces[1].at("baseTimeNanoseconds"));
  const auto first_step = [](const json& trace) {
    return events_of(trace, "user_annotation").at(0).at("ts").get<double>();
  };
  EXPECT_DOUBLE_EQ(first_step(traces[0]), 0);
  EXPECT_DOUBLE_EQ(first_step(traces[1]), 1.001) << "rank 1 starts 1001 ns after rank 0";
}

}  // namespace
}  // namespace lockstep::trace
