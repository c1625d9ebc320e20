// lockstep compare: the table, and the proof that every row computed the same weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

TEST(Compare, ListsOneDeviceFirstThenEachModeAndCount) {
  const TempFolder folder;
  const Outcome outcome = run_lockstep(
      words("compare --modes dp,ddp --devices 1,2,3 --steps 20 --json run.json"), folder.path());
  expect_success(outcome);
  const nlohmann::json rows = read_json(folder / "run.json")["rows"];
  std::vector<std::string> found;
  for (const nlohmann::json& row : rows) {
    found.push_back(row["mode"].get<std::string>() + std::to_string(row["devices"].get<int>()));
    EXPECT_LE(row["max_abs_weight_diff"], 1e-5) << found.back();
    EXPECT_EQ(row["weight_tolerance"], 1e-5);
    EXPECT_THAT(outcome.out, HasSubstr("\n" + row["mode"].get<std::string>()));
  }
  EXPECT_EQ(found,
            (std::vector<std::string>{"single1", "dp1", "dp2", "dp3", "ddp1", "ddp2", "ddp3"}));
  EXPECT_EQ(rows[0]["speedup"], 1.0);
  EXPECT_EQ(rows[0]["max_abs_weight_diff"], 0.0);
  EXPECT_THAT(outcome.out,
              HasSubstr("weights: every row equals the single-device run within 1e-05"));
}

TEST(Compare, Float64RowsAgreeTo1e12) {
  const TempFolder folder;
  expect_success(
      run_lockstep(words("compare --devices 2,5 --dtype float64 --batch 61 --steps 20 --json r"),
                   folder.path()));
  const nlohmann::json rows = read_json(folder / "r")["rows"];
  for (const nlohmann::json& row : rows) {
    EXPECT_LE(row["max_abs_weight_diff"], 1e-12);
    EXPECT_EQ(row["weight_tolerance"], 1e-12);
  }
}

TEST(Compare, BitwiseRowsDoNotDifferAtAll) {
  const TempFolder folder;
  expect_success(run_lockstep(words("compare --bitwise --devices 2,8 --steps 5 --json run.json"),
                              folder.path()));
  const nlohmann::json rows = read_json(folder / "run.json")["rows"];
  for (const nlohmann::json& row : rows) {
    EXPECT_EQ(row["max_abs_weight_diff"], 0.0);
    EXPECT_EQ(row["weight_tolerance"], 0.0);
  }
}

TEST(Compare, SaysThatDevicesShareCores) {
  const Outcome outcome = run_lockstep(words("compare --modes dp --devices 64 --steps 1"));
  expect_success(outcome);
  if (outcome.out.find("(64 cores)") == std::string::npos) {
    EXPECT_THAT(outcome.out, HasSubstr("64 virtual devices on "));
    EXPECT_THAT(outcome.out, HasSubstr("this shows overhead, not speed-up"));
  }
}

TEST(Compare, SaysWhichDevicesAreIdle) {
  const Outcome outcome = run_lockstep(words("compare --devices 1,4 --batch 3 --steps 2"));
  expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("1 of 4 devices stay idle: a batch of 3 rows"));
}

TEST(Compare, DoesNotCompareWeightsOfTheTorchSampler) {
  const Outcome outcome = run_lockstep(words("compare --devices 1,2 --sampler torch --steps 3"));
  expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("weights: not compared; --sampler torch pads the rows"));
}

TEST(Compare, StopsAtALossThatIsNotFinite) {
  const Outcome outcome = run_lockstep(words("compare --devices 2 --lr 1e30"));
  expect_rejected(outcome, 1, {"at step 1 on rank 0"});
}

}  // namespace
}  // namespace lockstep::testing
