// The run file of train and compare: values that fit each other. formats_test.cpp sees that every
// field is there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/runtime/logical_device.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;

void expect_sane_breakdown(const json& row) {
  double total = 0;
  for (const auto& [part, seconds] : row["breakdown_seconds"].items()) {
    EXPECT_GE(seconds, 0) << part;
    total += seconds.get<double>();
  }
  const double step = row["step_seconds"];
  EXPECT_NEAR(total, step, 0.01 * step);
  EXPECT_GT(row["breakdown_seconds"]["backward"], 0);
  EXPECT_GE(row["overlapped_comm_seconds"], 0);
  EXPECT_GE(row["breakdown_of"]["step"], 0);
  EXPECT_LT(row["breakdown_of"]["step"], row["iterations"]);
  EXPECT_EQ(row["breakdown_of"]["rank"], 0);
}

void expect_sane_statistics(const json& row) {
  const json& statistics = row["step_statistics"];
  const std::size_t num_ranks = row["mode"] == "ddp" ? row["devices"].get<std::size_t>() : 1;
  EXPECT_EQ(statistics["num_steps"], num_ranks * row["iterations"].get<std::size_t>());
  for (const auto& [name, median] : statistics["median_seconds"].items()) {
    EXPECT_GE(median, 0) << name;
    EXPECT_LE(median, statistics["p90_seconds"][name]) << name;
  }
  ASSERT_EQ(row["comm_overlap_fraction"].size(), row["devices"].get<std::size_t>());
  for (const json& fraction : row["comm_overlap_fraction"]) {
    EXPECT_EQ(fraction.is_null(), row["mode"] != "ddp") << "only ranks communicate";
    if (fraction.is_null()) continue;
    EXPECT_GE(fraction, 0);
    EXPECT_LE(fraction, 1);
  }
}

void expect_sane_row(const json& row, std::size_t batch, std::size_t num_epochs) {
  const std::size_t devices = row["devices"];
  EXPECT_EQ(row["kind"], "measured");
  EXPECT_EQ(row["physical_devices"], 1);
  EXPECT_EQ(row["virtual"], devices > 1);
  EXPECT_EQ(row["epoch_seconds"].size(), num_epochs);
  EXPECT_GT(row["median_epoch_seconds"], 0);
  EXPECT_NEAR(row["samples_per_second"].get<double>() * row["step_seconds"].get<double>(),
              static_cast<double>(batch), 1e-6);
  EXPECT_EQ(row["busy_fraction"].size(), devices);
  for (const json& fraction : row["busy_fraction"]) {
    EXPECT_GE(fraction, 0);
    EXPECT_LE(fraction, 1);
  }
  EXPECT_EQ(row["peak_bytes"].size(), devices);
  for (const json& bytes : row["peak_bytes"]) EXPECT_GT(bytes, 0);
  if (row["mode"] == "ddp") {
    // Each rank builds its model on its own device, and what earlier rows left there does not
    // count. The first device also has what other ranks copy to the host meanwhile.
    const auto [least, most] = std::ranges::minmax(row["peak_bytes"].get<std::vector<double>>());
    EXPECT_LE(most, 2.5 * least);
  }
  EXPECT_EQ(row["comm_bytes_per_device_per_step"] > 0, devices > 1);
  EXPECT_GT(row["final_loss"], 0);
  const std::size_t per_point = row["losses"]["steps_per_point"], steps = row["iterations"];
  EXPECT_EQ(row["losses"]["mean"].size(), (steps + per_point - 1) / per_point);
  EXPECT_GE(row["test_accuracy"], 0);
  EXPECT_LE(row["test_accuracy"], 1);
  EXPECT_EQ(row["epoch_accuracy"].size(), num_epochs);
  expect_sane_breakdown(row);
  expect_sane_statistics(row);
}

void expect_sane_workload(const json& workload) {
  EXPECT_EQ(workload["batch"], 60);
  EXPECT_EQ(workload["input_bytes_per_row"], 64 * 4);
  EXPECT_GT(workload["host_seconds_per_op"], 0);
  EXPECT_GT(workload["optimizer_seconds"], 0);
  ASSERT_EQ(workload["layers"].size(), 2u);
  EXPECT_EQ(workload["layers"][1]["name"], "2");
  EXPECT_EQ(workload["layers"][1]["parameter_bytes"], (32 * 10 + 10) * 4);
  EXPECT_GT(workload["layers"][0]["forward_seconds"], 0);
  EXPECT_GT(workload["layers"][0]["backward_seconds"], 0);
  EXPECT_THAT(workload["ready_order"].get<std::vector<std::string>>(),
              ::testing::UnorderedElementsAre("0.weight", "0.bias", "2.weight", "2.bias"));
}

json run(const std::string& arguments) {
  return run_file_of(arguments + " --model mlp:64-32-10 --batch 60");
}

TEST(RunFile, OfCompareHasEveryField) {
  const json file = run("compare --modes dp,ddp --devices 1,2,4 --epochs 2");
  EXPECT_THAT(file["date"].get<std::string>(), ::testing::MatchesRegex("20..-..-..T..:..:..Z"));
  EXPECT_EQ(file["command"][1], "compare");
  EXPECT_EQ(file["config"]["modes"], "dp,ddp");
  EXPECT_EQ(file["config"]["devices"], (std::vector<int>{1, 2, 4}));
  EXPECT_EQ(file["config"]["epochs"], 2);
  EXPECT_EQ(file["config"]["steps"], 50);
  ASSERT_EQ(file["rows"].size(), 7u);
  EXPECT_EQ(file["rows"][0]["mode"], "single");
  for (const json& row : file["rows"]) {
    expect_sane_row(row, 60, 2);
    const double speedup = file["rows"][0]["median_epoch_seconds"].get<double>() /
                           row["median_epoch_seconds"].get<double>();
    EXPECT_NEAR(row["speedup"], speedup, 1e-9);
    EXPECT_NEAR(row["efficiency"], speedup / row["ideal_speedup"].get<double>(), 1e-9);
  }
}

TEST(RunFile, OfTrainClaimsASpeedUpOnOneDeviceOnly) {
  json row = run("train --epochs 1")["rows"][0];
  EXPECT_EQ(row["mode"], "single");
  EXPECT_EQ(row["speedup"], 1.0);
  expect_sane_row(row, 60, 1);
  const json file = run("train --epochs 1 --devices 2 --parallel ddp --seed 7 --lr 0.2");
  EXPECT_EQ(file["config"]["parallel"], "ddp");
  EXPECT_EQ(file["config"]["devices"], 2);
  EXPECT_EQ(file["config"]["seed"], 7);
  EXPECT_EQ(file["config"]["lr"], 0.2);
  row = file["rows"][0];
  EXPECT_EQ(row["mode"], "ddp");
  for (const char* key : {"speedup", "efficiency", "max_abs_weight_diff", "verdict"}) {
    EXPECT_TRUE(row[key].is_null()) << key;
  }
  expect_sane_row(row, 60, 1);
  expect_sane_workload(file["workload"]);
}

// A rank that waits for a core waits inside a span: its recorder gives no core away between two.
TEST(RunFileOfRanksWithoutCores, LeavesNextToNothingUnattributed) {
  const std::string num_ranks = std::to_string(std::min<std::size_t>(2 * runtime::num_cores(), 8));
  const json run = run_file_of(
      "train --model mlp:64-512-512-10 --batch 128 --steps 30 --parallel ddp --devices " +
      num_ranks);
  const json statistics = run["rows"][0]["step_statistics"];
  for (const char* of : {"median_seconds", "p90_seconds"}) {
    EXPECT_LE(statistics[of]["unattributed"], 0.02 * statistics[of]["step"].get<double>()) << of;
  }
}

TEST(RunFile, DefaultsAreResolved) {
  const json config = run("train --steps 1 --optimizer adamw")["config"];
  EXPECT_EQ(config["device"], "cpu");
  EXPECT_EQ(config["transport"], "thread");
  EXPECT_EQ(config["lr"], 1e-3);
  EXPECT_EQ(config["weight_decay"], 1e-2);
  EXPECT_TRUE(config["momentum"].is_null());
}

// A recording holds the steps of a run of any length, if not all of them.
TEST(RunFile, StatisticsOfALongRunCoverItsStepsEvenly) {
  const json row = run_file_of("train --model mlp:64-10 --batch 4 --steps 20000")["rows"][0];
  EXPECT_EQ(row["iterations"], 20000);
  EXPECT_EQ(row["step_statistics"]["num_steps"], 10000);
}

}  // namespace
}  // namespace lockstep::testing
