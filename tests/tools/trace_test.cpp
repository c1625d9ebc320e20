// --trace: timelines that Perfetto and PyTorch's tools load.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;

// Times in the file have three decimals; sums of two of them differ from a third by less than this.
constexpr double kMicroseconds = 1e-3 / 2;

struct Span {
  double begin = 0;
  double end = 0;
  std::string name;
};

using Lane = std::pair<int, int>;  // process and thread

std::map<Lane, std::vector<Span>> spans_of_lanes(const json& trace) {
  std::map<Lane, std::vector<Span>> lanes;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const double begin = event["ts"];
    lanes[{event["pid"], event["tid"]}].push_back(
        {begin, begin + event["dur"].get<double>(), event["name"]});
  }
  return lanes;
}

void expect_no_overlap(std::vector<Span> spans, const Lane& lane) {
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.begin < b.begin; });
  for (std::size_t i = 0; i < spans.size(); ++i) {
    ASSERT_LE(spans[i].begin, spans[i].end);
    if (i == 0) continue;
    ASSERT_GE(spans[i].begin, spans[i - 1].end - kMicroseconds)
        << spans[i - 1].name << " and " << spans[i].name << " in process " << lane.first
        << ", thread " << lane.second;
  }
}

std::vector<std::string> names_of(const json& trace, const std::string& kind) {
  std::vector<std::string> names;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "M" && event["name"] == kind) names.push_back(event["args"]["name"]);
  }
  return names;
}

class Trace : public ::testing::Test {
 protected:
  json trace_of(const std::string& flags) {
    const Outcome outcome =
        run_command("train --steps 6 --trace trace.json " + flags, folder_.path());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "trace: trace.json; open it in https://ui.perfetto.dev\n");
    return read_json(folder_ / "trace.json");
  }

  std::size_t count(const json& trace, const std::string& category) {
    std::size_t found = 0;
    for (const json& event : trace["traceEvents"]) {
      found += event["ph"] == "X" && event["cat"] == category;
    }
    return found;
  }

  TempFolder folder_;
};

TEST_F(Trace, SpansOfALaneNeverOverlap) {
  for (const char* flags : {"", "--devices 3 --parallel dp", "--devices 3 --parallel ddp",
                            "--devices 2 --parallel ddp --bitwise", "--log steps.jsonl"}) {
    const json trace = trace_of(flags);
    const auto lanes = spans_of_lanes(trace);
    EXPECT_FALSE(lanes.empty());
    for (const auto& [lane, spans] : lanes) expect_no_overlap(spans, lane);
  }
}

TEST_F(Trace, OfDdpHasAProcessPerRank) {
  const json trace = trace_of("--devices 3 --parallel ddp");
  EXPECT_THAT(
      names_of(trace, "process_name"),
      ::testing::UnorderedElementsAre("rank 0 on cpu:0", "rank 1 on cpu:1", "rank 2 on cpu:2"));
  EXPECT_EQ(count(trace, "step"), 18u);
  EXPECT_GE(count(trace, "communication"), 18u);
}

TEST_F(Trace, OfDataParallelHasAProcessPerDeviceAndSpansForEveryKindOfWork) {
  const json trace = trace_of("--device-ids 4,1 --parallel dp");
  EXPECT_THAT(names_of(trace, "process_name"),
              ::testing::UnorderedElementsAre("device cpu:4", "device cpu:1"));
  EXPECT_EQ(count(trace, "step"), 6u);
}

TEST_F(Trace, OfEveryModeHasCountersWhoseLargestSampleOfMemoryIsNearThePeak) {
  for (const char* flags :
       {"", "--device-ids 4,1 --parallel dp", "--device-ids 4,1 --parallel ddp",
        "--devices 2 --parallel ddp --bitwise", "--devices 2 --parallel ddp --ranks processes",
        "--devices 2 --parallel ddp --act-as dgx-a100"}) {
    const json trace = trace_of(std::string(flags) + " --json run.json");
    const json row = read_json(folder_ / "run.json")["rows"][0];
    std::map<int, double> largest;
    for (const json& event : trace["traceEvents"]) {
      if (event["ph"] != "C") continue;
      const double value = event["args"]["value"];
      EXPECT_EQ(event["name"], "memory (bytes)");
      largest[event["pid"]] = std::max(largest[event["pid"]], value);
    }
    std::vector<double> peaks = row["peak_bytes"];
    ASSERT_EQ(largest.size(), peaks.size()) << flags;
    if (row.contains("peak_bytes_beside_steps")) {
      const std::vector<double> beside = row["peak_bytes_beside_steps"];
      for (std::size_t i = 0; i < peaks.size(); ++i) peaks[i] = std::max(peaks[i], beside[i]);
    }
    for (std::size_t i = 0; i < peaks.size(); ++i) {
      const bool is_named = std::string(flags).find("4,1 --parallel dp") != std::string::npos;
      const double sample = largest[is_named ? (i == 0 ? 4 : 1) : static_cast<int>(i)];
      EXPECT_LE(sample, peaks[i] + 1024) << "what was held before " << flags << ", device " << i;
      EXPECT_GT(sample, peaks[i] / 2) << flags << ", device " << i;
    }
  }
}

TEST_F(Trace, OfCompareIsTheLastRowsAndIsAnnouncedToo) {
  const Outcome outcome = run_lockstep(
      words("compare --modes ddp --devices 2 --steps 3 --ranks processes --trace t.json"),
      folder_.path());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, ::testing::HasSubstr("trace: t.json; open it in"));
  EXPECT_EQ(count(read_json(folder_ / "t.json"), "step"), 6u);
}

}  // namespace
}  // namespace lockstep::testing
