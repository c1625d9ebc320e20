// Kineto traces beside the run file of the same run: the overlap of communication and computation
// that Holistic Trace Analysis (HTA) would find in them is the one that the run file states.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;
using Interval = std::pair<double, double>;

// hta/common/types.py: a kernel is communication, or memory, or computation, by its name.
const std::regex kCommunication("^(nccl|hip|hccl).*|.*ncclKernel.*");
const std::regex kNoComputation(
    "^(nccl|hip|hccl|Stream Wait Event).*|.*(Memcpy|Memset|dma|Sync).*");

std::vector<Interval> union_of(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end());
  std::vector<Interval> set;
  for (const Interval& interval : intervals) {
    if (set.empty() || interval.first > set.back().second) {
      set.push_back(interval);
    } else {
      set.back().second = std::max(set.back().second, interval.second);
    }
  }
  return set;
}

double common_time(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  double total = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const double begin = std::max(a[i].first, b[j].first);
    const double end = std::min(a[i].second, b[j].second);
    total += std::max(0.0, end - begin);
    a[i].second < b[j].second ? ++i : ++j;
  }
  return total;
}

// HTA's get_comm_comp_overlap of one rank; null where nothing was communicated.
json hta_overlap(const json& trace) {
  std::vector<Interval> communication;
  std::vector<Interval> computation;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X" || !event["args"].contains("stream")) continue;
    const std::string name = event["name"];
    const double begin = event["ts"];
    const Interval interval{begin, begin + event["dur"].get<double>()};
    if (std::regex_match(name, kCommunication)) {
      communication.push_back(interval);
    } else if (!std::regex_match(name, kNoComputation)) {
      computation.push_back(interval);
    }
  }
  communication = union_of(std::move(communication));
  const double total = common_time(communication, communication);
  if (total == 0) return nullptr;
  return common_time(communication, union_of(std::move(computation))) / total;
}

struct Job {
  std::size_t num_ranks;
  const char* flags;
};

std::ostream& operator<<(std::ostream& out, const Job& job) {
  return out << job.num_ranks << " ranks " << job.flags;
}

class TraceOverlap : public ::testing::TestWithParam<Job> {};

TEST_P(TraceOverlap, ThatHtaFindsIsTheRunFiles) {
  const TempFolder folder;
  const auto& [num_ranks, flags] = GetParam();
  const Outcome outcome = run_lockstep(
      words("train --device cpu --steps 12 --model mlp:64-64-64-10 --parallel ddp --json run.json "
            "--trace t.json --trace-format kineto --devices " +
            std::to_string(num_ranks) + " " + flags),
      folder.path());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json fractions = read_json(folder / "run.json")["rows"][0]["comm_overlap_fraction"];
  ASSERT_EQ(fractions.size(), num_ranks);
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    const json trace = read_json(folder / ("t.rank_" + std::to_string(rank) + ".pt.trace.json"));
    const json found = hta_overlap(trace);
    ASSERT_FALSE(found.is_null()) << "DDP communicates, also alone";
    // Times in the file are exact to the nanosecond; what remains is the arithmetic.
    EXPECT_NEAR(found, fractions[rank], 1e-6) << "rank " << rank;
    // One bucket is reduced when backward is over: nothing is there to hide it behind.
    if (std::string(flags).find("bucket") == std::string::npos) {
      EXPECT_EQ(fractions[rank], 0.0);
    }
  }
}

constexpr const char* kBuckets = "--first-bucket-mib 0.001 --bucket-mib 0.01";
constexpr const char* kBucketsBetweenProcesses =
    "--first-bucket-mib 0.001 --bucket-mib 0.01 --ranks processes";
INSTANTIATE_TEST_SUITE_P(, TraceOverlap,
                         ::testing::Values(Job{1, ""}, Job{2, ""}, Job{4, ""}, Job{2, kBuckets},
                                           Job{4, kBuckets}, Job{2, "--ranks processes"},
                                           Job{4, kBucketsBetweenProcesses}));

}  // namespace
}  // namespace lockstep::testing
