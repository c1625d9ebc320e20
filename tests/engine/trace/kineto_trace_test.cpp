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
#include <tuple>
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
      text_of_rank(1, {.world_size = 2, .backend = "lockstep", .device_names = {"cpu:0", "cpu:1"}});
  const json trace = json::parse(text);
  EXPECT_EQ(trace.at("schemaVersion"), 1);
  EXPECT_EQ(trace.at("distributedInfo"),
            (json{{"backend", "lockstep"}, {"rank", 1}, {"world_size", 2}}));
  EXPECT_EQ(trace.at("deviceProperties"),
            (json{{{"id", 0}, {"name", "cpu:0"}}, {{"id", 1}, {"name", "cpu:1"}}}))
      << "TensorBoard takes entry 1 for device 1";
  EXPECT_EQ(trace.at("displayTimeUnit"), "ns") << "with ms, chrome://tracing drops arrows";
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
  EXPECT_EQ(annotations["nccl:all_reduce"], 3u) << "the name by which TensorBoard knows it";
  EXPECT_EQ(events_of(trace, "cpu_op").size(), 3u * 4u);
}

TEST(KinetoTrace, CollectivesHaveTheirBytesAsATensorOfBytes) {
  for (const json& event : events_of(json::parse(text_of_rank(0)), "user_annotation")) {
    if (event.at("name") != "nccl:all_reduce") continue;
    EXPECT_EQ(event.at("args").at("Input Dims"), (json{{4096}}));
    EXPECT_EQ(event.at("args").at("Input type"), json{"unsigned char"});
  }
}

TEST(KinetoTrace, CommunicationOutsideTheStepsIsOnTheHostOnlyAndUnderItsOwnName) {
  Recording recording = two_ranks_three_steps();
  recording.spans.push_back({.name = "broadcast",
                             .begin_ns = 10,
                             .end_ns = 20,
                             .id = 1000,
                             .lane = Lane::comm,
                             .category = Category::communication});
  std::ostringstream out;
  write_kineto_trace(out, recording, 0);
  const json trace = json::parse(out.str());
  std::size_t on_host = 0;
  for (const json& event : events_of(trace, "user_annotation")) {
    on_host += event.at("name") == "broadcast";
    EXPECT_NE(event.at("name"), "nccl:broadcast");
  }
  EXPECT_EQ(on_host, 1u);
  for (const json& event : events_of(trace, "kernel")) {
    EXPECT_NE(event.at("name"), "ncclKernel_broadcast");
  }
}

TEST(KinetoTrace, DeviceSideHoldsTheInnermostSpansOfEachLane) {
  const json trace = json::parse(text_of_rank(0));
  std::map<std::string, std::set<int>> streams_of_name;
  for (const json& event : events_of(trace, "kernel")) {
    streams_of_name[event.at("name")].insert(event.at("args").at("stream").get<int>());
  }
  EXPECT_EQ(streams_of_name,
            (std::map<std::string, std::set<int>>{{"forward", {7}},
                                                  {"backward", {7}},
                                                  {"linear", {7}},
                                                  {"relu", {7}},
                                                  {"linear backward", {7}},
                                                  {"sgd", {7}},
                                                  {"ncclKernel_all_reduce", {20}}}));
  double forward = 0;
  for (const json& event : events_of(trace, "kernel")) {
    if (event.at("name") == "forward") forward += event.at("dur").get<double>();
  }
  EXPECT_NEAR(forward, 3 * (10 + 10) * 1.001, 1e-9) << "what its ops leave of it";
}

TEST(KinetoTrace, EachKernelIsTiedToItsHostEvent) {
  const json trace = json::parse(text_of_rank(0));
  std::map<int, json> host_events;
  for (const json& event : trace.at("traceEvents")) {
    if (event.value("cat", "") == "cpu_op" || event.value("cat", "") == "user_annotation") {
      host_events[event.at("args").at("correlation")] = event;
    }
  }
  const auto kernels = events_of(trace, "kernel");
  ASSERT_FALSE(kernels.empty());
  for (const json& kernel : kernels) {
    const json& host = host_events.at(kernel.at("args").at("correlation"));
    const double begin = host.at("ts");
    EXPECT_LE(begin, kernel.at("ts"));
    EXPECT_GE(begin + host.at("dur").get<double>(),
              kernel.at("ts").get<double>() + kernel.at("dur").get<double>() - 1e-9);
    EXPECT_NE(host.at("pid"), kernel.at("pid"));
  }
}

TEST(KinetoTrace, AnOpIsNotAtWorkWhileItWaitsForTheAllReduceInsideIt) {
  Recording recording;
  recording.spans.push_back({.name = "launch bucket", .begin_ns = 0, .end_ns = 9000, .id = 1});
  recording.spans.push_back({.name = "all_reduce",
                             .begin_ns = 2000,
                             .end_ns = 8000,
                             .id = 2,
                             .lane = Lane::comm,
                             .category = Category::communication});
  std::ostringstream out;
  write_kineto_trace(out, recording, 0);
  std::set<std::tuple<std::string, double, double>> kernels;
  for (const json& kernel : events_of(json::parse(out.str()), "kernel")) {
    kernels.emplace(kernel.at("name"), kernel.at("ts"), kernel.at("dur"));
  }
  EXPECT_EQ(
      kernels,
      (std::set<std::tuple<std::string, double, double>>{
          {"launch bucket", 0, 2}, {"ncclKernel_all_reduce", 2, 6}, {"launch bucket", 8, 1}}));
}

TEST(KinetoTrace, CopiesAreMemcpys) {
  Recording recording;
  recording.spans.push_back({.name = "scatter",
                             .begin_ns = 0,
                             .end_ns = 9,
                             .num_bytes = 64,
                             .id = 1,
                             .lane = Lane::copy,
                             .category = Category::copy});
  std::ostringstream out;
  write_kineto_trace(out, recording, 0);
  const auto copies = events_of(json::parse(out.str()), "gpu_memcpy");
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].at("name"), "Memcpy DtoD (scatter)");
  EXPECT_EQ(copies[0].at("args").at("bytes"), 64);
}

// What the host recorded says when the work was given to the GPU, not when it was done.
TEST(KinetoTrace, WhatAGpuTimedIsItsDeviceSideAndBelongsToTheHostsStep) {
  Recording recording;
  const auto add = [&](const char* name, std::int64_t begin_ns, std::int64_t end_ns,
                       std::uint32_t thread, Lane lane, Category category) {
    recording.spans.push_back({.name = name,
                               .begin_ns = begin_ns,
                               .end_ns = end_ns,
                               .sequence = category == Category::step ? 4 : kNoSequence,
                               .id = recording.spans.size() + 1,
                               .thread = thread,
                               .lane = lane,
                               .category = category});
  };
  add("step", 0, 10, 0, Lane::host, Category::step);
  add("Linear", 2, 8, 0, Lane::compute, Category::op);
  add("step", 20, 60, kDeviceThread, Lane::host, Category::step);
  add("forward", 20, 40, kDeviceThread, Lane::compute, Category::forward);
  add("wait for all-reduce", 40, 60, kDeviceThread, Lane::compute, Category::communication);
  std::ostringstream out;
  write_kineto_trace(out, recording, 0);
  const json trace = json::parse(out.str());
  const auto kernels = events_of(trace, "kernel");
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].at("name"), "forward");
  const json step = events_of(trace, "user_annotation").at(0);
  EXPECT_EQ(step.at("name"), "ProfilerStep#4");
  EXPECT_EQ(kernels[0].at("args").at("correlation"), step.at("args").at("correlation"));
  EXPECT_EQ(events_of(trace, "cpu_op").size(), 1u);
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

TEST(KinetoTrace, CountersAndTheClockAreOfTheRanksDevice) {
  Recording recording = two_ranks_three_steps();
  recording.memory = {{5001 * 1001, 64, 0}, {5002 * 1001, 128, 1}};
  recording.clocks[1] = {10, 20, -5, 1, 3};
  std::ostringstream out;
  write_kineto_trace(out, recording, 1);
  const json trace = json::parse(out.str());
  EXPECT_EQ(trace.at("clock"), (json{{"offset_ns", -5}, {"drift_ns", 1}, {"error_ns", 3}}));
  std::map<std::string, std::vector<json>> values;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "C") continue;
    EXPECT_EQ(event.at("pid"), 1);
    values[event.at("name")].push_back(event.at("args").at("value"));
  }
  EXPECT_EQ(values["memory (bytes)"], (std::vector<json>{128}));
  EXPECT_EQ(values["bytes in flight"], (std::vector<json>{4096, 0, 4096, 0, 4096, 0}));
}

TEST(KinetoTrace, FilesAreNamedAsTensorBoardWantsThem) {
  EXPECT_EQ(kineto_path("a/out.json", 3), "a/out.rank_3.pt.trace.json");
  EXPECT_EQ(kineto_path("out.pt.trace.json", 0), "out.rank_0.pt.trace.json");
  EXPECT_EQ(kineto_path("a.b/out", 12), "a.b/out.rank_12.pt.trace.json");
}

TEST(KinetoTrace, IsSavedAsOneFilePerRankOnOneTimeBase) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "lockstep_kineto.json";
  const auto files = save_kineto_traces(path, two_ranks_three_steps(), {.world_size = 2});
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].filename(), "lockstep_kineto.rank_0.pt.trace.json");
  EXPECT_EQ(files[1].filename(), "lockstep_kineto.rank_1.pt.trace.json");
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
