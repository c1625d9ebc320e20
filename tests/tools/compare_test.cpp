// lockstep compare: the table, and the verdict that every row trains as one device does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/runtime/logical_device.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

void expect_equal_to_one_device(const nlohmann::json& row, double tolerance) {
  const nlohmann::json& verdict = row["verdict"];
  EXPECT_EQ(verdict["equal"], true);
  EXPECT_LE(verdict["first_steps_tolerance"], tolerance);
  EXPECT_LE(verdict["first_steps_max_abs_diff"], verdict["first_steps_tolerance"]);
  ASSERT_EQ(verdict["gradient_checks"].size(), 2u);
  EXPECT_EQ(verdict["gradient_checks"][0]["step"], 0);
  EXPECT_EQ(verdict["gradient_checks"][1]["step"], 19);
  for (const nlohmann::json& check : verdict["gradient_checks"]) {
    EXPECT_LE(check["max_relative_error"], tolerance);
  }
}

void expect_equal_rows(const nlohmann::json& run) {
  for (const nlohmann::json& row : run["rows"]) EXPECT_EQ(row["verdict"]["equal"], true);
}

TEST(Compare, ListsOneDeviceFirstThenEachModeAndCount) {
  const TempFolder folder;
  const std::string out =
      run_well("compare --modes dp,ddp --devices 1,2,3 --steps 20 --json run.json", folder.path());
  const nlohmann::json rows = read_json(folder / "run.json")["rows"];
  std::vector<std::string> found;
  for (const nlohmann::json& row : rows) {
    found.push_back(row["mode"].get<std::string>() + std::to_string(row["devices"].get<int>()));
    expect_equal_to_one_device(row, 1e-5);
    EXPECT_THAT(out, HasSubstr("\n" + row["mode"].get<std::string>()));
  }
  // Rows that share cores come last, in the same order.
  std::vector<std::string> expected{"single1", "dp1", "dp2", "dp3", "ddp1", "ddp2", "ddp3"};
  std::ranges::stable_partition(expected, [](const std::string& row) {
    return row == "single1" || static_cast<std::size_t>(row.back() - '0') <= runtime::num_cores();
  });
  EXPECT_EQ(found, expected);
  EXPECT_EQ(rows[0]["speedup"], 1.0);
  EXPECT_EQ(rows[0]["max_abs_weight_diff"], 0.0);
  EXPECT_THAT(out, HasSubstr("verdict: every row trains as one device does"));
}

TEST(Compare, Float64RowsAgreeTo1e12) {
  const nlohmann::json run =
      run_file_of("compare --devices 2,5 --dtype float64 --batch 61 --steps 20");
  for (const nlohmann::json& row : run["rows"]) expect_equal_to_one_device(row, 1e-12);
}

const std::string kAugmented = "--model cnn:4c3-p2-10 --augment crop,flip --batch 350 --epochs 2 ";
const std::string kAccumulated =
    "--device cpu --devices 2,3 --modes dp,ddp,zero1,zero2,zero3 --epochs 2 --accumulate ";

class EveryRow : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryRow, EqualsOneDevice) {
  expect_equal_rows(run_file_of("compare " + GetParam()));
}

INSTANTIATE_TEST_SUITE_P(
    Compare, EveryRow,
    ::testing::Values(
        // On two devices a share has one row of the last batch less, and batch norm sees few
        // values: amplified rounding is no fault.
        "--model resnet18:4 --steps 22 --modes dp,ddp --devices 2,3 --batch 6 --seed 5",
        "--model resnet18:4 --steps 22 --modes ddp --devices 4 --batch 4 --sync-batch-norm",
        // Twenty steps at this rate are enough to drift apart: float64 tells that it was rounding.
        "--devices 3 --lr 2 --epochs 2 --batch 256",
        // Augmentation with uneven shards, and an epoch's smaller last batch.
        kAugmented + "--modes dp,ddp --devices 3",
        kAugmented + "--modes ddp --ranks processes --devices 2",
        kAugmented + "--modes dp,ddp --devices 2 --bitwise",
        kAugmented + "--modes dp,ddp --devices 2 --dtype float64",
        // The last batch has one row for two or three ranks, in several micro-batches.
        kAccumulated + "2 --batch 4 --dataset synthetic:5x3x2 --model mlp:3-2",
        kAccumulated + "4 --batch 8 --dataset synthetic:21x3x2 --model mlp:3-8-2",
        kAccumulated + "2 --batch 6 --dataset synthetic:10x3x2 --model mlp:3-4-2"));

// Batch norm of each device's own rows: the gradients are one device's given the same statistics.
TEST(Compare, RowsWithBatchNormAreJudgedLikeAnyOther) {
  const TempFolder folder;
  const std::string out = run_well(
      "compare --model resnet18:4 --batch 30 --modes dp,ddp --devices 2,3 --steps 3 --json r",
      folder.path());
  EXPECT_THAT(out, HasSubstr("batch norm takes the statistics of each device's own rows"));
  const nlohmann::json run = read_json(folder / "r");
  expect_equal_rows(run);
  for (const nlohmann::json& row : run["rows"]) {
    EXPECT_LE(row["verdict"]["first_steps_max_abs_diff"], row["verdict"]["first_steps_tolerance"]);
    EXPECT_EQ(row["verdict"]["gradient_checks"].size(), 2u);
  }
}

TEST(Compare, InterruptsAndResumesItsLastRow) {
  for (const char* how : {"--modes dp,zero3", "--modes ddp --ranks processes"}) {
    const TempFolder folder;
    const std::string out =
        run_well("compare --model mlp:64-16-10 --devices 2 --steps 12 --interrupt --json r " +
                     std::string(how),
                 folder.path());
    EXPECT_THAT(out, HasSubstr("x2, stopped after step 4 of 12 and resumed"));
    const nlohmann::json resumed = read_json(folder / "r")["resumed"];
    EXPECT_EQ(resumed["after_step"], 4);
    EXPECT_EQ(resumed["equal"], true);
  }
}

TEST(Compare, RowsWithCutMatricesAreJudgedLikeDdps) {
  for (const char* how : {"--model mlp:64-256-256-10 --clip-norm 0.5",
                          "--dataset embedded-text --model gpt:1-4-16-16 --optimizer adamw "
                          "--accumulate 2 --ranks processes"}) {
    SCOPED_TRACE(how);
    const nlohmann::json run = run_file_of(
        "compare --batch 30 --modes ddp,tensor --devices 2,4 --steps 4 " + std::string(how));
    ASSERT_EQ(run["rows"].size(), 5U);
    expect_equal_rows(run);
    for (const nlohmann::json& row : run["rows"]) {
      if (row["mode"] == "tensor") {
        EXPECT_GT(row["comm_bytes_per_device_per_step"], 0);
      }
    }
  }
}

// Shards of rows that are uneven, clipping, and a last rank that has padding alone of a bias.
TEST(Compare, RowsWithShardsAreJudgedLikeDdps) {
  for (const char* how : {"--model mlp:64-24-10 --optimizer adamw --clip-norm 0.5", "--model lenet",
                          "--dataset embedded-text --model gpt:1-2-16-16 --optimizer adamw",
                          "--model mlp:64-24-10 --ranks processes"}) {
    SCOPED_TRACE(how);
    const nlohmann::json run =
        run_file_of("compare --batch 30 --modes ddp,zero1,zero2,zero3 --devices 3 --steps 4 " +
                    std::string(how));
    expect_equal_rows(run);
    const nlohmann::json& rows = run["rows"];
    ASSERT_EQ(rows.size(), 5U);
    EXPECT_EQ(rows[2]["mode"], "zero1");
    EXPECT_EQ(rows[4]["mode"], "zero3");
    const auto sent = [&](std::size_t row) {
      return rows[row]["comm_bytes_per_device_per_step"].get<double>();
    };
    // Between processes DDP's plan for few bytes sends more.
    const bool has_threads = std::string(how).find("processes") == std::string::npos;
    if (has_threads) {
      EXPECT_NEAR(sent(2) / sent(1), 1, 0.1);
    }
    EXPECT_EQ(sent(2), sent(3));
    EXPECT_NEAR(sent(4) / sent(2), 1.5, 0.05);
  }
}

// Uneven shards: 30 rows by 4 devices.
TEST(Compare, SynchronisedBatchNormEndsAsOneDevice) {
  const nlohmann::json run = run_file_of(
      "compare --model resnet18:4 --batch 30 --modes dp,ddp --devices 4 --steps 3 --lr 0.01 "
      "--sync-batch-norm");
  expect_equal_rows(run);
  for (const nlohmann::json& row : run["rows"]) {
    EXPECT_LE(row["verdict"]["first_steps_max_abs_diff"], 1e-4);
  }
}

// 1500 rows of 6 steps; the test rows are as they are.
TEST(Compare, AugmentationChangesTheTrainingRowsAlone) {
  const auto train = [](const std::string& flags) {
    return run_file_of("train --model cnn:4c3-p2-10 --batch 250 --lr 0 " + flags);
  };
  const nlohmann::json plain = train("");
  const nlohmann::json augmented = train("--augment crop,flip");
  EXPECT_EQ(augmented["config"]["augment"], "crop,flip");
  EXPECT_EQ(plain["rows"][0]["test_accuracy"], augmented["rows"][0]["test_accuracy"]);
  EXPECT_NE(plain["rows"][0]["final_loss"], augmented["rows"][0]["final_loss"]);
}

TEST(Compare, SaysThatDevicesShareCores) {
  const std::string out =
      run_well("compare --modes dp,ddp --devices 64,1 --threads-per-device 1 --steps 1");
  if (runtime::num_cores() >= 64) return;
  // A disturbed row may have been measured again, with a line that says so between the rows.
  const std::size_t note = out.find(": below, overhead only\n");
  ASSERT_NE(note, std::string::npos) << out;
  const std::string above = out.substr(0, note);
  const std::string below = out.substr(note);
  for (const std::string mode : {"\ndp", "\nddp"}) {
    EXPECT_THAT(above, ContainsRegex(mode + "[ *?+]+1 "));
    EXPECT_THAT(above, Not(ContainsRegex(mode + "[ *?+]+64 ")));
    EXPECT_THAT(below, ContainsRegex(mode + "[ *?+]+64 "));
  }
}

// Each row's devices have the threads of the largest row's, so that a second device is one more.
TEST(Compare, ADeviceHasTheSameSizeInEveryRow) {
  const std::size_t cores = runtime::num_cores();
  for (const std::string ranks : {"threads", "processes"}) {
    SCOPED_TRACE(ranks);
    const nlohmann::json run =
        run_file_of("compare --device cpu --modes dp,ddp --devices 1,2 --steps 2 --ranks " + ranks);
    for (const nlohmann::json& row : run["rows"]) {
      EXPECT_EQ(row["threads_per_device"], std::max<std::size_t>(1, cores / 2));
      const auto ideal = std::min(row["devices"].get<std::size_t>(), cores);
      EXPECT_EQ(row["ideal_speedup"], static_cast<double>(ideal));
    }
  }
}

// One device with as many rows as each of the others has is what a group is compared with.
TEST(Compare, GrowsTheBatchWithTheDevices) {
  const TempFolder folder;
  const std::string out = run_well(
      "compare --device cpu --modes ddp --devices 1,2 --per-device-batch 8,32 --steps 10 "
      "--threads-per-device 1 --json run.json",
      folder.path());
  EXPECT_THAT(out, HasSubstr("\n8 rows a device\nsingle"));
  EXPECT_THAT(out, HasSubstr("\n32 rows a device\nsingle"));
  const nlohmann::json run = read_json(folder / "run.json");
  EXPECT_EQ(run["config"]["per_device_batch"], (std::vector<int>{8, 32}));
  std::vector<int> batches;
  for (const nlohmann::json& row : run["rows"]) {
    batches.push_back(row["batch"]);
    EXPECT_LE(row["max_abs_weight_diff"], 1e-5);
    const bool is_single = row["mode"] == "single";
    if (is_single) {
      EXPECT_EQ(row["speedup"], 1.0);
    }
    EXPECT_EQ(row["efficiency"].get<double>(),
              row["speedup"].get<double>() / row["ideal_speedup"].get<double>());
  }
  EXPECT_EQ(batches, (std::vector<int>{8, 8, 16, 32, 32, 64}));
}

TEST(Compare, StatesItsBaselineAndEndsWithWhatBoundsTheRun) {
  const std::string out =
      run_well("compare --device cpu --devices 2 --threads-per-device 1 --steps 10");
  EXPECT_THAT(out, HasSubstr("\nbaseline: single, 1 device with 1 thread\n"));
  EXPECT_THAT(out.substr(out.find("verdict: ")),
              ContainsRegex("\ndd?p x2 is [0-9.]+x as fast as one device, where "));
}

TEST(Compare, DoesNotCompareWeightsOfTheTorchSampler) {
  const std::string out = run_well("compare --devices 1,2 --sampler torch --steps 3");
  EXPECT_THAT(out, HasSubstr("weights: not compared; --sampler torch pads the rows"));
}

TEST(Compare, ExplainsDriftByTrainingOnceMoreInFloat64) {
  const std::string out =
      run_well("compare --devices 2 --steps 40 --model mlp:64-16-10 --explain-drift");
  EXPECT_THAT(out, HasSubstr("drift of the weights after 40 steps, and what float64 gives"));
  EXPECT_THAT(out, HasSubstr("it is rounding, not the engine"));
}

}  // namespace
}  // namespace lockstep::testing
