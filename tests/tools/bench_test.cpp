// lockstep bench: its tables and the files lockstep.bench-step/1 and lockstep.bench-all-reduce/1.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string_view>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json bench(const std::string& arguments) {
  const Outcome outcome = run_lockstep(words("bench " + arguments + " --json -"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  json file = json::parse(outcome.out);
  EXPECT_EQ(file["schema"], "lockstep.bench-" + arguments.substr(0, arguments.find(' ')) + "/1");
  EXPECT_THAT(file["date"].get<std::string>(), ::testing::MatchesRegex("20..-..-..T..:..:..Z"));
  EXPECT_EQ(file["command"][1], "bench");
  EXPECT_TRUE(file["host"].contains("cpu"));
  return file;
}

TEST(BenchStep, HasARowPerModelBatchAndThreads) {
  const json rows = bench(
      "step --model mlp:16-8-4,mlp:8-2 --batch 4,9 --threads-per-device 1,2 "
      "--seconds 0.001")["rows"];
  ASSERT_EQ(rows.size(), 8u);
  EXPECT_EQ(rows[0]["model"], "mlp:16-8-4");
  EXPECT_EQ(rows[7]["model"], "mlp:8-2");
  EXPECT_EQ(rows[7]["batch"], 9);
  EXPECT_EQ(rows[7]["threads"], 2);
  for (const json& row : rows) {
    EXPECT_EQ(row["device"], "cpu:0");
    EXPECT_EQ(row["graph"], false);
    const double seconds = row["median_step_seconds"];
    EXPECT_GT(seconds, 0);
    EXPECT_GE(row["iterations"], 11);
    EXPECT_EQ(row["warmup_iterations"], 5);
    EXPECT_NEAR(row["samples_per_second"].get<double>() * seconds, row["batch"], 1e-6);
    EXPECT_GT(row["gflops"], 0);
  }
  // 2 operations per weight and row forward, 2 for weight gradients, 2 for the second layer's
  // input.
  const double flops = 4 * (4.0 * 16 * 8 + 6.0 * 8 * 4);
  EXPECT_NEAR(rows[0]["gflops"].get<double>() * 1e9 * rows[0]["median_step_seconds"].get<double>(),
              flops, 1e-6 * flops);
}

TEST(BenchAllReduce, HasARowPerSizeAndNcclTestsDefinitions) {
  const json rows = bench("all-reduce -b 1K -e 16K -f 4 -n 3 -w 1 -c 1 --devices 3")["rows"];
  ASSERT_EQ(rows.size(), 3u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const json& row = rows[i];
    EXPECT_EQ(row["bytes"], std::size_t{1024} << (2 * i));
    EXPECT_EQ(row["ranks"], 3);
    EXPECT_EQ(row["comm"], "own");
    EXPECT_EQ(row["transport"], "thread");
    EXPECT_EQ(row["wrong"], 0);
    EXPECT_EQ(row["iterations"], 3);
    EXPECT_EQ(row["warmup_iterations"], 1);
    const double algbw = row["bytes"].get<double>() / row["time_us"].get<double>() * 1e-3;
    EXPECT_NEAR(row["algbw_gb_per_s"], algbw, 1e-6 * algbw);
    EXPECT_NEAR(row["busbw_gb_per_s"], algbw * 4 / 3, 1e-6 * algbw);
  }
}

TEST(BenchAllReduce, TakesAtLeastAsLongAsItsLinks) {
  const json row =
      bench("all-reduce -b 1M -e 1M -n 1 -w 0 -c 1 --plan ring --link 2ms,1GB/s")["rows"][0];
  EXPECT_EQ(row["transport"], "thread behind a modelled link (2ms,1GB/s)");
  EXPECT_EQ(row["wrong"], 0);
  EXPECT_GE(row["time_us"], 2 * 2000 + 1048.576);  // two steps, half a buffer each
}

TEST(BenchAllReduce, ChecksEveryPlan) {
  for (const char* plan :
       {"ring", "tree", "halving-doubling", "one-shot", "two-shot", "reduce-broadcast"}) {
    const json rows =
        bench(std::string("all-reduce -b 20 -e 20 -n 1 -c 1 --devices 5 --plan ") + plan)["rows"];
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0]["plan"], plan);
    EXPECT_EQ(rows[0]["wrong"], 0);
  }
}

// 6 types with 4 operations each, and the average of the 4 that are floating point.
TEST(BenchAllReduce, ChecksEveryTypeAndOperation) {
  const json rows =
      bench("all-reduce -d all -o all -z 1 -R 0 -b 4K -e 4K -n 1 -w 0 -c 1 --devices 3")["rows"];
  std::set<std::string> kinds;
  for (const json& row : rows) {
    EXPECT_EQ(row["wrong"], 0) << row;
    kinds.insert(
        fmt::format("{} {}", row["type"].get<std::string>(), row["redop"].get<std::string>()));
  }
  EXPECT_EQ(kinds.size(), 28u);
  EXPECT_TRUE(kinds.contains("half avg") && !kinds.contains("int32 avg"));
}

TEST(BenchAllReduce, DoesNotClaimToHaveChecked) {
  EXPECT_TRUE(bench("all-reduce -b 4 -e 4 -n 1 -c 0")["rows"][0]["wrong"].is_null());
}

TEST(BenchAllReduce, PrintsNcclTestsColumns) {
  const Outcome outcome = run_lockstep(words("bench all-reduce -b 1M -e 1M -n 1 -c"));
  expect_success(outcome);
  for (const char* column : {"size", "count", "type", "redop", "time", "algbw", "busbw", "#wrong",
                             "Avg bus bandwidth"}) {
    EXPECT_THAT(outcome.out, HasSubstr(column));
  }
  EXPECT_THAT(outcome.out, HasSubstr("1048576"));
}

// The lines of nccl-tests 2.19: a comment begins with '#', any other line is a row of 13 columns.
struct NcclTestsOutput {
  std::vector<std::string> comments;
  std::vector<std::vector<std::string>> rows;
};
NcclTestsOutput nccl_tests(const std::string& arguments, const TempFolder& folder) {
  const Outcome outcome =
      run_lockstep(words("bench all-reduce --format nccl-tests " + arguments), folder.path());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  NcclTestsOutput output;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) {
      output.comments.push_back(line);
    } else {
      output.rows.push_back(words(line));
    }
  }
  return output;
}

TEST(BenchAllReduce, InNcclTestsFormatHasItsLinesAndColumns) {
  const TempFolder folder;
  const NcclTestsOutput output =
      nccl_tests("-b 1K -e 4K -i 1K -g 3 -n 2 -w 1 -c 1 -d double -o max", folder);
  const auto has_line = [&](const std::string& line) {
    EXPECT_THAT(output.comments, ::testing::Contains(line));
  };
  has_line(
      "# nThread 1 nGpus 3 minBytes 1024 maxBytes 4096 step: 1024(bytes) warmup iters: 1 iters: 2 "
      "agg iters: 1 validation: 1 graph: 0 unalign: 0");
  has_line("# Using devices");
  has_line(
      "#       size         count      type   redop    root     time   algbw   busbw  #wrong     "
      "time "
      "  algbw   busbw  #wrong ");
  has_line(
      "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             "
      "(us) "
      " (GB/s)  (GB/s)         ");
  has_line("# Out of bounds values : 0 OK");
  EXPECT_THAT(output.comments,
              ::testing::Contains(::testing::MatchesRegex("# Avg bus bandwidth    : [0-9.e+-]+ ")));
  EXPECT_THAT(output.comments,
              ::testing::Contains(::testing::MatchesRegex(
                  "#  Rank  2 Group  0 Pid +[0-9]+ on +[^ ]+ device  2 .cpu:2. cpu")));
  ASSERT_EQ(output.rows.size(), 4u);
  for (std::size_t i = 0; i < output.rows.size(); ++i) {
    const std::vector<std::string>& row = output.rows[i];
    ASSERT_EQ(row.size(), 13u);
    EXPECT_EQ(row[0], std::to_string(1024 * (i + 1)));
    EXPECT_EQ(row[1], std::to_string(128 * (i + 1)));
    EXPECT_EQ(row[2], "double");
    EXPECT_EQ(row[3], "max");
    EXPECT_EQ(row[4], "-1");
    for (const std::size_t time : {5u, 9u}) {
      EXPECT_GT(std::stod(row[time]), 0);
      EXPECT_EQ(row[time + 3], "0");
    }
  }
}

TEST(BenchAllReduce, InNcclTestsFormatSaysNAWhereNothingWasChecked) {
  const TempFolder folder;
  const NcclTestsOutput output = nccl_tests("-b 4K -e 4K -n 1", folder);
  ASSERT_EQ(output.rows.size(), 1u);
  EXPECT_EQ(output.rows[0][8], "N/A");
  EXPECT_EQ(output.rows[0][12], "N/A");
}

TEST(BenchAllReduce, RanksAsProcessesAreListedWithTheirProcesses) {
  const TempFolder folder;
  const NcclTestsOutput output = nccl_tests("--ranks processes -g 2 -b 4K -e 4K -n 1 -c", folder);
  std::set<std::string> processes;
  for (const std::string& line : output.comments) {
    if (line.starts_with("#  Rank")) processes.insert(words(line)[6]);
  }
  EXPECT_EQ(processes.size(), 2u);
  ASSERT_EQ(output.rows.size(), 1u);
}

TEST(BenchAllReduce, WritesNcclTestsFileAndNeverOverOne) {
  const TempFolder folder;
  for (const char* name : {"out.json", "out.json.0"}) {
    const NcclTestsOutput output =
        nccl_tests("-b 1K -e 4K -f 2 -g 2 -n 2 -w 1 -c 1 -J out.json", folder);
    EXPECT_THAT(output.comments,
                ::testing::Contains("# Writing JSON output to " + std::string(name)));
    const json file = json::parse(read_text(folder / name));
    EXPECT_EQ(file["version"], 3);
    EXPECT_EQ(file["config"]["ngpus"], 2);
    EXPECT_EQ(file["config"]["step_factor"], 2);
    EXPECT_EQ(file["config"]["devices"].size(), 2u);
    EXPECT_EQ(file["results"].size(), 3u);
    EXPECT_EQ(file["results"][2]["size"], 4096);
    for (const char* placement : {"out_of_place", "in_place"}) {
      const json& time = file["results"][2][placement];
      EXPECT_NEAR(time["alg_bw"].get<double>() * time["time"].get<double>(), 4.096, 1e-6);
      EXPECT_EQ(time["bus_bw"], time["alg_bw"]) << "2(n-1)/n is 1 for two ranks";
      EXPECT_EQ(time["nwrong"], 0);
    }
    EXPECT_EQ(file["out_of_bounds"]["okay"], "true");
  }
}

TEST(BenchAllReduce, OneRankMovesNothing) {
  EXPECT_EQ(bench("all-reduce -b 4K -e 4K -n 2 --devices 1")["rows"][0]["busbw_gb_per_s"], 0.0);
}

}  // namespace
}  // namespace lockstep::testing
