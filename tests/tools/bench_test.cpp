// lockstep bench: its tables and the files lockstep.bench-step/1 and lockstep.bench-all-reduce/1.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json bench(const std::string& arguments) {
  const Outcome outcome = run_command("bench " + arguments + " --json -");
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

TEST(BenchStep, TakesGpts) {
  constexpr double kBatch = 2, kTokens = 16, kChannels = 8;
  for (const bool has_text : {false, true}) {
    const json row = bench(std::string("step --model gpt:1-2-8-16 --batch 2 --seconds 0.001") +
                           (has_text ? " --dataset embedded-text" : ""))["rows"][0];
    EXPECT_EQ(row["row_shape"], json({16}));
    const double vocabulary = row["num_classes"];
    if (has_text) {
      EXPECT_LT(vocabulary, 200);
    } else {
      EXPECT_EQ(vocabulary, 50257);
    }
    // 2 operations per weight and token forward, 4 backward; the table of tokens, padded to a
    // multiple of 64, is the last layer. Attention has two products of each token with those before
    // it, half of all, and backward five.
    const double weights = kChannels * (12 * kChannels + std::ceil(vocabulary / 64) * 64);
    const double attention = kTokens * kChannels;
    const double flops = kBatch * kTokens * (6 * weights + 7 * attention);
    EXPECT_NEAR(row["gflops"].get<double>() * 1e9 * row["median_step_seconds"].get<double>(), flops,
                1e-6 * flops);
  }
}

// But a few numbers for each row of a norm, and of attention, are float32.
TEST(BenchStep, ActivationsOfMixedPrecisionTakeHalfTheMemory) {
  const auto kept = [](const std::string& precision) {
    const json row = bench(
        "step --model gpt:2-2-64-32 --dataset embedded-text --batch 2 --seconds "
        "0.001 --memory --precision " +
        precision)["rows"][0];
    double num_bytes = 0;
    for (const json& layer : row["memory"]) num_bytes += layer["activation_bytes"].get<double>();
    return num_bytes;
  };
  const double share = kept("bf16") / kept("fp32");
  EXPECT_GE(share, 0.5);
  EXPECT_LE(share, 0.51);
}

json work_of(const std::string& arguments) {
  const Outcome outcome = run_command("bench step --work " + arguments + " --json -");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return json::parse(outcome.out)["rows"][0];
}

json kernel_of(const json& row, const std::string& name) {
  for (const json& kernel : row["kernels"]) {
    if (kernel["name"] == name) return kernel;
  }
  ADD_FAILURE() << "no kernel " << name << " in " << row["kernels"];
  return {};
}

TEST(StepWork, CountsWhatTheKernelsOfAStepComputeAndMove) {
  const json row = work_of("--model mlp:16-8-4 --batch 5");
  EXPECT_EQ(row["batch"], 5);
  EXPECT_FALSE(row.contains("least_seconds"));
  const json forward = kernel_of(row, "linear");
  EXPECT_EQ(forward["calls"], 2);
  EXPECT_EQ(forward["flop"], 2 * 5 * (16 * 8 + 8 * 4));
  // Rows, weights, biases and results. A ReLU needs no numbers from before it.
  const int first = 5 * 16 + 16 * 8 + 8 + 5 * 8;
  const int second = 5 * 8 + 8 * 4 + 4 + 5 * 4;
  EXPECT_EQ(forward["bytes"], 4 * (first + second));
  // The first layer's input needs no gradient.
  EXPECT_EQ(kernel_of(row, "linear backward")["flop"], 2 * 5 * (16 * 8 + 2 * 8 * 4));
  EXPECT_EQ(row["flop"], 2 * 5 * (2 * 16 * 8 + 3 * 8 * 4));
  double num_bytes = 0;
  for (const json& kernel : row["kernels"]) num_bytes += kernel["bytes"].get<double>();
  EXPECT_EQ(row["bytes"], num_bytes);
}

TEST(StepWork, TakesAtLeastTheLongerOfArithmeticAndMemory) {
  const json row = work_of("--model mlp:64-512-8 --batch 4096 --card H200");
  EXPECT_EQ(row["card"], "H200");
  const auto least = [](const json& kernel) {
    return std::max(kernel["flop"].get<double>() / 66.9e12, kernel["bytes"].get<double>() / 4.8e12);
  };
  const json update = kernel_of(row, "sgd");
  EXPECT_DOUBLE_EQ(update["least_seconds"], least(update));
  EXPECT_EQ(update["bytes"], 5 * 4 * (64 * 512 + 512 + 512 * 8 + 8));
  EXPECT_GT(kernel_of(row, "linear")["flop"].get<double>() / 66.9e12,
            0.5 * kernel_of(row, "linear")["least_seconds"].get<double>());
}

TEST(StepWork, IsCountedForStepsThatNoCpuCouldRunInTime) {
  const std::string gpt = "--model gpt:12-4-64-1024 --batch 64 --card H200 --precision ";
  const json mixed = work_of(gpt + "bf16");
  const double weights = 12 * 12 * 64.0 * 64 + 50304 * 64.0;
  const double attention = 12 * 1024 * 64.0;
  EXPECT_EQ(mixed["flop"], 64 * 1024 * (6 * weights + 7 * attention));
  EXPECT_EQ(kernel_of(mixed, "attention")["calls"], 12);
  const json tf32 = work_of(gpt + "tf32");
  EXPECT_EQ(tf32["flop"], mixed["flop"]);
  EXPECT_LT(mixed["bytes"], tf32["bytes"]);
  EXPECT_LT(mixed["least_seconds"], tf32["least_seconds"]);
}

TEST(BenchAllReduce, HasARowPerSizeAndItsBandwidths) {
  const json rows = bench("all-reduce -b 1K -e 16K -f 4 -n 3 -w 1 -c --devices 3")["rows"];
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
      bench("all-reduce -b 1M -e 1M -n 1 -w 0 -c --plan ring --link 2ms,1GB/s")["rows"][0];
  EXPECT_EQ(row["transport"], "thread behind a simulated link (2ms,1GB/s)");
  EXPECT_EQ(row["wrong"], 0);
  EXPECT_GE(row["time_us"], 2 * 2000 + 1048.576);  // two steps, half a buffer each
}

TEST(BenchAllReduce, ChecksEveryPlan) {
  for (const char* plan :
       {"ring", "tree", "halving-doubling", "one-shot", "two-shot", "reduce-broadcast"}) {
    const json rows =
        bench(std::string("all-reduce -b 20 -e 20 -n 1 -c --devices 5 --plan ") + plan)["rows"];
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0]["plan"], plan);
    EXPECT_EQ(rows[0]["wrong"], 0);
  }
}

TEST(BenchAllReduce, DoesNotClaimToHaveChecked) {
  EXPECT_TRUE(bench("all-reduce -b 4 -e 4 -n 1")["rows"][0]["wrong"].is_null());
}

TEST(BenchAllReduce, TakesTypeOperationAndProcesses) {
  for (const std::string kind : {"-d half -o avg", "-d double -o max", "-d int32"}) {
    const json row = bench("all-reduce -b 1K -e 1K -g 3 -n 2 -w 1 -c " + kind)["rows"][0];
    EXPECT_EQ(row["wrong"], 0);
    EXPECT_EQ(row["ranks"], 3);
  }
  const json processes = bench("all-reduce --ranks processes -g 2 -b 4K -e 4K -n 1 -c")["rows"];
  EXPECT_EQ(processes[0]["ranks"], 2);
}

TEST(BenchAllReduce, OneRankMovesNothing) {
  EXPECT_EQ(bench("all-reduce -b 4K -e 4K -n 2 --devices 1")["rows"][0]["busbw_gb_per_s"], 0.0);
}

}  // namespace
}  // namespace lockstep::testing
