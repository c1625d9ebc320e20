// lockstep train where ranks are processes: the same weights as with threads, whoever started them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>

#include "engine/runtime/threads.h"
#include "tests/tools/rank_variables.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The last of these batches has 36 rows.
const std::string kWork = "train --parallel ddp --bitwise --batch 61 --steps 26 ";

// The digest of one device's weights.
const std::string& reference() {
  static const std::string digest =
      weights_digest(run_well("train --bitwise --batch 61 --steps 26"));
  return digest;
}

Outcome run(const std::string& launcher, const std::string& work, const Variables& variables = {}) {
  return MarkedProgram(words(launcher + " " + LOCKSTEP_PROGRAM + " " + work), variables).wait();
}

std::string under_lockstep_run(int num_ranks) {
  return std::string(LOCKSTEP_PROGRAM) + " run --standalone --nproc-per-node " +
         std::to_string(num_ranks) + " --";
}

// Starts a process for each set of variables; returns what rank 0 did. The others print nothing.
Outcome run_by_hand(const std::vector<Variables>& ranks, const std::string& work) {
  std::vector<std::unique_ptr<MarkedProgram>> programs;
  for (const Variables& rank : ranks) {
    programs.push_back(
        std::make_unique<MarkedProgram>(words(std::string(LOCKSTEP_PROGRAM) + " " + work), rank));
  }
  Outcome first = programs[0]->wait();
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    const Outcome outcome = programs[rank]->wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
  return first;
}

TEST(ProcessRanks, StartedByTrainItselfComputeTheBitsOfOneDevice) {
  for (const char* count : {"1", "2", "4"}) {
    for (const char* transport : {"shm", "tcp"}) {
      const std::string out =
          run_well(kWork + "--ranks processes --devices " + count + " --transport " + transport);
      EXPECT_EQ(weights_digest(out), reference()) << count << " over " << transport;
    }
  }
}

TEST(ProcessRanks, StartedByLockstepRunOnlyTheFirstOnePrints) {
  const Outcome outcome = run(under_lockstep_run(4), kWork);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(weights_digest(outcome.out), reference());
  EXPECT_THAT(outcome.out, HasSubstr("[0] using device: cpu:0"));
  EXPECT_THAT(outcome.out, HasSubstr("[0] rank 0 of 4 (lockstep run), own: auto over shm"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("[1]")));
}

TEST(ProcessRanks, ThatDifferInAFlagAreToldWhichAndHow) {
  const std::vector<Variables> variables = ranks_by_hand(2);
  const std::vector<std::array<std::string, 3>> differences = {
      {"--lr 0.5", "lr: ", "0.5 (rank 1)"},
      {"--batch 32", "batch: ", "32 (rank 1)"},
      {"--bitwise", "bitwise: ", "true (rank 1)"}};
  for (const auto& [flag, name, theirs] : differences) {
    const auto start = [&](std::size_t rank, const std::string& flags) {
      return std::make_unique<MarkedProgram>(
          words(std::string(LOCKSTEP_PROGRAM) + " train --parallel ddp --steps 4 " + flags),
          variables[rank]);
    };
    const auto first = start(0, "");
    const auto second = start(1, flag);
    for (const Outcome& outcome : {first->wait(), second->wait()}) {
      EXPECT_NE(outcome.exit_code, 0);
      EXPECT_THAT(outcome.err, HasSubstr("[join] the ranks differ in " + name));
      EXPECT_THAT(outcome.err, HasSubstr(theirs));
    }
  }
}

TEST(ProcessRanks, StartedAsTorchrunDoes) {
  const Outcome outcome = run_by_hand(ranks_of_torchrun(2), kWork);
  EXPECT_EQ(weights_digest(outcome.out), reference()) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("rank 0 of 2 (torchrun)"));
}

TEST(ProcessRanks, StartedInASlurmStep) {
  const Outcome outcome = run_by_hand(ranks_of_slurm_step(2), kWork);
  EXPECT_EQ(weights_digest(outcome.out), reference()) << outcome.err;
}

TEST(ProcessRanks, StartedByMpirun) {
  const std::string launcher = mpirun(4);
  if (launcher.empty()) GTEST_SKIP() << "no mpirun here";
  const Outcome outcome = run(launcher, kWork);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(weights_digest(outcome.out), reference());
}

TEST(ProcessRanks, TheFirstOneWritesTheFilesForAll) {
  const TempFolder folder;
  const Outcome outcome = run_lockstep(
      words("train --parallel ddp --ranks processes --devices 2 --steps 3 --json run.json --log "
            "log.jsonl --save w.safetensors --trace trace.json"),
      folder.path());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const nlohmann::json run = read_json(folder / "run.json");
  EXPECT_EQ(run["config"]["ranks"], "processes");
  EXPECT_EQ(run["config"]["comm"], "own");
  const nlohmann::json row = run["rows"][0];
  EXPECT_EQ(row["mode"], "ddp");
  EXPECT_EQ(row["devices"], 2);
  EXPECT_EQ(row["physical_devices"], 1);
  EXPECT_EQ(row["busy_fraction"].size(), 2u);
  EXPECT_EQ(row["peak_bytes"].size(), 2u);
  for (const nlohmann::json& bytes : row["peak_bytes"]) EXPECT_GT(bytes, 0);
  EXPECT_GT(row["comm_bytes_per_device_per_step"], 0);
  const std::string log = read_text(folder / "log.jsonl");
  EXPECT_EQ(count_of(log, "\n"), 3);
  EXPECT_TRUE(std::filesystem::exists(folder / "w.safetensors"));
  std::set<int> processes;
  const nlohmann::json trace = read_json(folder / "trace.json");
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") processes.insert(event["pid"].get<int>());
  }
  EXPECT_EQ(processes, (std::set<int>{0, 1}));
}

// Each process numbers its threads from 0; the breakdown of one must not hold the other's spans.
TEST(ProcessRanks, TheFirstOneWritesTheLogIfItWasGivenTheFlag) {
  const TempFolder folder;
  const std::vector<Variables> variables = ranks_of_torchrun(2);
  const auto start = [&](std::size_t rank, const std::string& flags) {
    return std::make_unique<MarkedProgram>(
        words(std::string(LOCKSTEP_PROGRAM) + " train --parallel ddp --steps 3 " + flags),
        variables[rank], folder.path());
  };
  for (const char* of_second : {"", "--log log.jsonl", "--log other.jsonl"}) {
    std::filesystem::remove(folder / "log.jsonl");
    const auto first = start(0, "--log log.jsonl");
    const auto second = start(1, of_second);
    EXPECT_EQ(first->wait().exit_code, 0) << of_second;
    EXPECT_EQ(second->wait().exit_code, 0) << of_second;
    const std::string log = read_text(folder / "log.jsonl");
    EXPECT_EQ(count_of(log, "\n"), 3) << of_second;
    EXPECT_FALSE(std::filesystem::exists(folder / "other.jsonl"));
  }
  const auto first = start(0, "");
  const auto second = start(1, "--log other.jsonl");
  for (const Outcome& outcome : {first->wait(), second->wait()}) {
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_THAT(outcome.err, HasSubstr("[--log] rank 0 writes the file"));
  }
}

TEST(ProcessRanks, RunFileAndTimelineShowTheSameStep) {
  const TempFolder folder;
  const Outcome outcome = run_command(
      "train --parallel ddp --ranks processes --devices 2 --steps 5 "
      "--json run.json --trace trace.json",
      folder.path());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const nlohmann::json row = read_json(folder / "run.json")["rows"][0];
  const nlohmann::json events = read_json(folder / "trace.json")["traceEvents"];
  const auto is_of_rank_0 = [](const nlohmann::json& event, std::string_view category) {
    return event["ph"] == "X" && event["cat"] == category && event["pid"] == 0;
  };
  const auto step = std::ranges::find_if(events, [&](const nlohmann::json& event) {
    return is_of_rank_0(event, "step") && event["args"]["sequence"] == row["breakdown_of"]["step"];
  });
  ASSERT_NE(step, events.end());
  for (const char* part : {"forward", "optimizer"}) {
    double us = 0;
    for (const nlohmann::json& event : events) {
      const double since = event.value("ts", 0.0) - (*step)["ts"].get<double>();
      if (since >= 0 && since < (*step)["dur"] && is_of_rank_0(event, part)) {
        us += event["dur"].get<double>();
      }
    }
    const double in_file = 1e6 * row["breakdown_seconds"][part].get<double>();
    EXPECT_NEAR(us, in_file, 0.01 * in_file) << part;
  }
}

TEST(ProcessRanks, InsideAJobTheLauncherHasDecided) {
  const Variables job = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", free_port()}};
  const auto expect_refused = [&](const std::string& work, const std::string& phrase) {
    const Outcome outcome = run_command(work, {}, job);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.err, HasSubstr(phrase));
  };
  expect_refused("train", "[--parallel] ranks that are processes (2 here)");
  expect_refused("train --parallel dp", "found dp");
  expect_refused("train --parallel ddp --ranks threads", "[--ranks] by hand started 2 processes");
  expect_refused("train --parallel ddp --devices 3", "[--devices] by hand started 2 processes");
  expect_refused("compare", "[compare] starts its ranks itself");
}

// The cores that two ranks under `lockstep run` report as theirs, in order.
std::vector<std::string> cores_of_two_ranks(const std::string& flags) {
  const Outcome outcome =
      MarkedProgram(run_script("--standalone --nproc-per-node 2 " + flags,
                               "echo $(grep Cpus_allowed_list /proc/self/status)"))
          .wait();
  std::vector<std::string> cores = lines_of(outcome.out);
  for (std::string& line : cores) line.erase(0, 4);
  return cores;
}

TEST(ProcessRanks, HaveCoresOfTheirOwnUnlessTheyAreNotBound) {
  if (runtime::allowed_cores().size() < 2) GTEST_SKIP() << "two ranks need two cores";
  const std::vector<std::string> bound = cores_of_two_ranks("");
  const std::vector<std::string> free = cores_of_two_ranks("--bind-to none");
  ASSERT_EQ(bound.size(), 2u);
  ASSERT_EQ(free.size(), 2u);
  EXPECT_NE(bound[0], bound[1]);
  EXPECT_EQ(free[0], free[1]);
}

}  // namespace
}  // namespace lockstep::testing
