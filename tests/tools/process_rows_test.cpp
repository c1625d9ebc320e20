// compare and bench all-reduce where ranks are processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/tools/marked_program.h"
#include "tools/report/row_file.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(ProcessRows, CompareHasTheSameRowsAndTheProof) {
  const TempFolder folder;
  const Outcome outcome =
      run_lockstep(words("compare --ranks processes --devices 1,2,3 --steps 20 --json run.json "
                         "--trace t.json --no-shuffle"),
                   folder.path());
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "trace: t.json; open it in https://ui.perfetto.dev\n");
  const json run = read_json(folder / "run.json");
  EXPECT_EQ(run["config"]["ranks"], "processes");
  std::vector<std::string> found;
  for (const json& row : run["rows"]) {
    found.push_back(row["mode"].get<std::string>() + std::to_string(row["devices"].get<int>()));
    EXPECT_EQ(row["verdict"]["equal"], true) << found.back();
    EXPECT_LE(row["verdict"]["first_steps_max_abs_diff"], 1e-5) << found.back();
    EXPECT_EQ(row["verdict"]["gradient_checks"].size(), 2u) << found.back();
    EXPECT_EQ(row["busy_fraction"].size(), row["devices"].get<std::size_t>());
    EXPECT_TRUE(row.contains("breakdown_seconds")) << found.back();
    EXPECT_EQ(row["step_statistics"]["num_steps"],
              20 * (row["mode"] == "ddp" ? row["devices"].get<int>() : 1));
    EXPECT_EQ(row["comm_overlap_fraction"].size(), row["devices"].get<std::size_t>());
    EXPECT_NEAR(row["final_loss"], run["rows"][0]["final_loss"], 1e-5);
  }
  EXPECT_EQ(found,
            (std::vector<std::string>{"single1", "dp1", "dp2", "dp3", "ddp1", "ddp2", "ddp3"}));
  EXPECT_THAT(outcome.out, HasSubstr("verdict: every row trains as one device does"));
  EXPECT_FALSE(read_json(folder / "t.json")["traceEvents"].empty());
}

TEST(ProcessRows, ExplainDriftByTrainingOnceMoreInFloat64) {
  const Outcome outcome = run_lockstep(
      words("compare --ranks processes --modes ddp --devices 2 --steps 30 --explain-drift"));
  expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("it is rounding, not the engine"));
}

TEST(ProcessRows, EveryDeviceGetsTheRowsOfThePerDeviceBatch) {
  const TempFolder folder;
  expect_success(run_lockstep(words("compare --ranks processes --modes ddp --devices 1,2 "
                                    "--per-device-batch 16 --steps 6 --json run.json"),
                              folder.path()));
  const json rows = read_json(folder / "run.json")["rows"];
  EXPECT_EQ(rows[0]["batch"], 16);
  EXPECT_EQ(rows[1]["batch"], 16);
  EXPECT_EQ(rows[2]["batch"], 32);
  EXPECT_LE(rows[2]["max_abs_weight_diff"], 1e-5);  // of one device with 32 rows
}

TEST(ProcessRows, TheRanksHaveTheFlagsOfCompare) {
  const TempFolder folder;
  const std::string flags =
      " --modes ddp --devices 2 --steps 30 --seed 9 --no-shuffle --model mlp:64-20-10:tanh"
      " --optimizer adamw --lr 0.01 --weight-decay 0.1 --schedule cosine --warmup 3 --clip-norm 0.5"
      " --dtype float64 --bucket-mib 0.01 --first-bucket-mib 0.001 --plan tree --batch 50 --accumulate 5";
  std::vector<json> rows;
  for (const std::string ranks : {"threads", "processes"}) {
    expect_success(
        run_lockstep(words("compare --json run.json --ranks " + ranks + flags), folder.path()));
    rows.push_back(read_json(folder / "run.json")["rows"][1]);
  }
  for (const char* field : {"batch", "iterations", "comm_bytes_per_device_per_step"}) {
    EXPECT_EQ(rows[0][field], rows[1][field]) << field;
  }
  EXPECT_NEAR(rows[0]["final_loss"], rows[1]["final_loss"], 1e-12);
}

TEST(ProcessRows, BitwiseRowsDoNotDifferAtAll) {
  const TempFolder folder;
  expect_success(run_lockstep(words("compare --ranks processes --modes ddp --bitwise --devices 2,4 "
                                    "--steps 5 --json run.json"),
                              folder.path()));
  const json run = read_json(folder / "run.json");
  for (const json& row : run["rows"]) {
    EXPECT_EQ(row["max_abs_weight_diff"], 0.0);
  }
}

TEST(ProcessRows, AFailureOfTheRanksIsOneLine) {
  const Outcome outcome =
      run_lockstep(words("compare --ranks processes --modes ddp --devices 4 --steps 2 "
                         "--comm-timeout 0.0001"));
  expect_rejected(outcome, 1, {"[compare] ddp on 4 processes ended with exit code 1"});
}

TEST(RowFile, ComesBackAsItWas) {
  const TempFolder folder;
  tools::RunRow row;
  row.placement = {tools::Mode::ddp, {Device{}, Device{DeviceType::cpu, 1}}, 2};
  row.threads_per_device = 3;
  row.contended.reset();
  row.result.epoch_seconds = {0.5, 0.25};
  row.result.breakdown.emplace();
  row.result.breakdown->exposed_comm = 0.125;
  row.result.breakdown->step = 1;
  row.result.breakdown->sequence = 4;
  row.result.step_statistics.num_steps = 18;
  row.result.step_statistics.median.forward = 0.5;
  row.result.step_statistics.p90.comm = 0.75;
  row.result.comm_overlap = {0.25, std::nullopt};
  row.result.busy_fraction = {0.5, 1};
  row.result.peak_bytes = {7, 8};
  row.result.num_steps = 9;
  row.result.final_loss = 0.1;
  row.result.losses = {2, {2.5, 0.5}};
  row.result.findings.emplace();
  row.result.findings->num_first_steps = 7;
  row.result.findings->first_weights = {{"0.weight", {0.1, -2}}, {"0.bias", {3}}};
  row.result.findings->gradient_checks = {{0, 1e-7}, {24, 2e-7}};
  row.result.findings->gradient_limit = 1e-5;
  row.result.findings->failure = {"replicas", 24, 1, "0.bias", "differs"};
  tools::write_row(folder / "row", row);
  const tools::RunRow back = tools::read_row(folder / "row");
  EXPECT_EQ(back.placement.devices, row.placement.devices);
  EXPECT_EQ(back.placement.num_physical, 2u);
  EXPECT_EQ(back.threads_per_device, 3u);
  EXPECT_FALSE(back.contended.has_value());
  EXPECT_EQ(back.result.epoch_seconds, row.result.epoch_seconds);
  EXPECT_EQ(back.result.breakdown->exposed_comm, 0.125);
  EXPECT_EQ(back.result.breakdown->step, 1);
  EXPECT_EQ(back.result.breakdown->sequence, 4);
  EXPECT_EQ(back.result.step_statistics.num_steps, 18u);
  EXPECT_EQ(back.result.step_statistics.median.forward, 0.5);
  EXPECT_EQ(back.result.step_statistics.p90.comm, 0.75);
  EXPECT_EQ(back.result.comm_overlap, row.result.comm_overlap);
  EXPECT_EQ(back.result.peak_bytes, row.result.peak_bytes);
  EXPECT_EQ(back.result.final_loss, 0.1);
  EXPECT_EQ(back.result.losses.steps_per_point, 2u);
  EXPECT_EQ(back.result.losses.mean, row.result.losses.mean);
  const tools::RunFindings& findings = *back.result.findings;
  EXPECT_EQ(findings.num_first_steps, 7u);
  EXPECT_EQ(
      tools::largest_difference(findings.first_weights, row.result.findings->first_weights).value,
      0);
  EXPECT_EQ(findings.gradient_checks[1].step, 24u);
  EXPECT_EQ(findings.gradient_checks[1].max_relative_error, 2e-7);
  EXPECT_EQ(findings.gradient_limit, 1e-5);
  EXPECT_EQ(findings.failure->text(), row.result.findings->failure->text());
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
  EXPECT_THAT(outcome.out, HasSubstr("[0] # nProcess 4"));
  EXPECT_THAT(outcome.out, HasSubstr("[0] # Out of bounds values : 0 OK"));
}

TEST(ProcessBench, MeasuresTheMpiLibrary) {
  if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "no mpirun here";
  const Outcome start = run_lockstep(words("bench all-reduce -b 1K -e 1K -n 2 -c --comm mpi"));
  if (start.err.find("built without MPI") != std::string::npos) GTEST_SKIP() << start.err;
  EXPECT_EQ(start.exit_code, 0) << start.err;
  EXPECT_THAT(start.err, HasSubstr("starting the ranks: "));
  EXPECT_THAT(start.out, HasSubstr("rank 0 of 2 (mpirun (Open MPI)), mpi: "));
  EXPECT_THAT(start.out, HasSubstr("# Out of bounds values : 0 OK"));
  const json rows = bench("mpirun --allow-run-as-root --oversubscribe -np 3", "--comm mpi");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["comm"], "mpi");
  EXPECT_EQ(rows[0]["ranks"], 3);
}

}  // namespace
}  // namespace lockstep::testing
