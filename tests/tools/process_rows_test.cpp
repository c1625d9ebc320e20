// compare and bench all-reduce where ranks are processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TEST(ProcessRows, CompareHasTheSameRowsAndTheProof) {
  const TempFolder folder;
  const Outcome outcome = run_command(
      "compare --ranks processes --devices 1,2,3 --steps 20 --json run.json "
      "--trace t.json --no-shuffle",
      folder.path());
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "trace: t.json; open it in https://ui.perfetto.dev\n");
  const json run = read_json(folder / "run.json");
  EXPECT_EQ(run["config"]["ranks"], "processes");
  std::vector<std::string> found;
  for (const json& row : run["rows"]) {
    found.push_back(row["mode"].get<std::string>() + std::to_string(row["devices"].get<int>()));
    EXPECT_EQ(row["verdict"]["equal"], true) << found.back();
    EXPECT_EQ(row["step_statistics"]["num_steps"],
              20 * (row["mode"] == "ddp" ? row["devices"].get<int>() : 1));
    EXPECT_NEAR(row["final_loss"], run["rows"][0]["final_loss"], 1e-5);
  }
  EXPECT_THAT(found, UnorderedElementsAre("single1", "dp1", "dp2", "dp3", "ddp1", "ddp2", "ddp3"));
  EXPECT_THAT(outcome.out, HasSubstr("verdict: every row trains as one device does"));
  EXPECT_FALSE(read_json(folder / "t.json")["traceEvents"].empty());
}

TEST(ProcessRows, TheRanksHaveTheFlagsOfCompare) {
  const std::string flags =
      " --modes ddp --devices 2 --steps 30 --seed 9 --no-shuffle --model mlp:64-20-10:tanh"
      " --optimizer adamw --lr 0.01 --weight-decay 0.1 --schedule cosine --warmup 3 --clip-norm 0.5"
      " --dtype float64 --bucket-mib 0.01 --first-bucket-mib 0.001 --plan tree --batch 50 "
      "--accumulate 5";
  std::vector<json> rows;
  for (const std::string ranks : {"threads", "processes"}) {
    rows.push_back(run_file_of("compare --ranks " + ranks + flags)["rows"][1]);
  }
  for (const char* field : {"batch", "iterations", "comm_bytes_per_device_per_step"}) {
    EXPECT_EQ(rows[0][field], rows[1][field]) << field;
  }
  EXPECT_NEAR(rows[0]["final_loss"], rows[1]["final_loss"], 1e-12);
}

TEST(ProcessRows, AFailureOfTheRanksIsOneLine) {
  const Outcome outcome = run_command(
      "compare --ranks processes --modes ddp --devices 4 --steps 2 "
      "--comm-timeout 0.0001");
  expect_rejected(outcome, 1, {"[compare] ddp on 4 processes ended with exit code 1"});
}

json bench(const std::string& launcher, const std::string& flags) {
  const Outcome outcome = MarkedProgram(words(launcher + " " + LOCKSTEP_PROGRAM +
                                              " bench all-reduce -b 1K -e 16K -n 3 "
                                              "-w 1 -c --json - " +
                                              flags))
                              .wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return json::parse(outcome.out)["rows"];
}

TEST(ProcessBench, ChecksSumsOverEveryTransport) {
  for (const char* transport : {"shm", "tcp"}) {
    const json rows =
        bench("env", std::string("--ranks processes --devices 3 --transport ") + transport);
    ASSERT_EQ(rows.size(), 3u);
    for (const json& row : rows) {
      EXPECT_EQ(row["ranks"], 3);
      EXPECT_EQ(row["comm"], "own");
      EXPECT_EQ(row["transport"], transport);
      EXPECT_EQ(row["wrong"], 0);
    }
  }
}

TEST(ProcessBench, RunsInsideAJob) {
  const Outcome outcome =
      MarkedProgram(words(std::string(LOCKSTEP_PROGRAM) + " run --standalone --nproc-per-node 4 " +
                          "-- " + LOCKSTEP_PROGRAM + " bench all-reduce -b 1K -e 1K -n 2 -c"))
          .wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("[0] 4 ranks: processes on cpu devices"));
  EXPECT_THAT(outcome.out, HasSubstr("[0] checked"));
}

}  // namespace
}  // namespace lockstep::testing
