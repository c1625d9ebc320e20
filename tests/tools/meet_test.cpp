// One program, started by lockstep run, by hand, as torchrun does it, by mpirun, and in a step of
// Slurm: its ranks meet.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "engine/launch/port.h"
#include "tests/tools/marked_program.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

std::string free_port() {
  using launch::PortReservation;
  return std::to_string(PortReservation(0, PortReservation::Scope::loopback).port());
}

Outcome run_meet(const std::string& flags, const std::string& arguments = "") {
  return MarkedProgram(words(std::string(LOCKSTEP_PROGRAM) + " run " + flags + " -- " + MEET_RANKS +
                             " " + arguments))
      .wait();
}

// Starts one process for each set of variables, and expects that they meet.
void expect_meeting(const std::vector<Variables>& ranks) {
  std::vector<std::unique_ptr<MarkedProgram>> programs;
  for (const Variables& rank : ranks) {
    programs.push_back(std::make_unique<MarkedProgram>(Arguments{MEET_RANKS}, rank));
  }
  const std::string n = std::to_string(ranks.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const Outcome outcome = programs[rank]->wait();
    EXPECT_EQ(outcome.err, "");
    EXPECT_THAT(outcome.out, HasSubstr("rank " + std::to_string(rank) + " of " + n));
  }
}

TEST(Meet, UnderLockstepRun) {
  const Outcome outcome = run_meet("--standalone --nproc-per-node 4");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* rank : {"0", "1", "2", "3"}) {
    EXPECT_THAT(outcome.out, HasSubstr("[" + std::string(rank) + "] rank " + rank +
                                       " of 4, local rank " + rank + " of 4, sum 6"));
  }
}

TEST(Meet, SixtyFourRanks) {
  const Outcome outcome = run_meet("--standalone --nproc-per-node 64", "60");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("[63] rank 63 of 64, local rank 63 of 64, sum 2016"));
}

TEST(Meet, AloneIsRankZeroOfOne) {
  EXPECT_EQ(MarkedProgram({MEET_RANKS}).wait().out, "rank 0 of 1, local rank 0 of 1, sum 0\n");
  EXPECT_EQ(run_meet("--nproc-per-node 1").out, "[0] rank 0 of 1, local rank 0 of 1, sum 0\n");
}

TEST(Meet, TwoLaunchersOfTwoNodes) {
  const std::string flags =
      std::string(" run --nnodes=2 --nproc_per_node=2 --master_addr=127.0.0.1") +
      " --master_port=" + free_port() + " --node_rank=";
  const std::string command = LOCKSTEP_PROGRAM + flags;
  MarkedProgram first(words(command + "1 -- " + MEET_RANKS));
  MarkedProgram zeroth(words(command + "0 -- " + MEET_RANKS));
  const Outcome one = first.wait();
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr("[3] rank 3 of 4, local rank 1 of 2, sum 6"));
  EXPECT_EQ(zeroth.wait().exit_code, 0);
}

TEST(Meet, ByHand) {
  const std::string port = free_port();
  expect_meeting(
      {{{"RANK", "0"}, {"LOCAL_RANK", "0"}, {"WORLD_SIZE", "3"}, {"MASTER_PORT", port}},
       {{"RANK", "1"}, {"LOCAL_RANK", "1"}, {"WORLD_SIZE", "3"}, {"MASTER_PORT", port}},
       {{"RANK", "2"}, {"LOCAL_RANK", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_PORT", port}}});
}

TEST(Meet, AsTorchrunStartsThemWhileItsAgentHoldsThePort) {
  using launch::PortReservation;
  const std::string port = free_port();
  std::vector<Variables> ranks;
  for (const char* rank : {"0", "1"}) {
    ranks.push_back({{"RANK", rank},
                     {"LOCAL_RANK", rank},
                     {"WORLD_SIZE", "2"},
                     {"LOCAL_WORLD_SIZE", "2"},
                     {"GROUP_RANK", "0"},
                     {"MASTER_ADDR", "localhost"},
                     {"MASTER_PORT", port},
                     {"TORCHELASTIC_RUN_ID", "none"},
                     {"TORCHELASTIC_RESTART_COUNT", "0"},
                     {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  }
  expect_meeting(ranks);
}

TEST(Meet, InASlurmStep) {
  std::vector<Variables> ranks;
  for (const char* rank : {"0", "1"}) {
    ranks.push_back({{"SLURM_JOB_ID", free_port()},  // a number that no other test has now
                     {"SLURM_STEP_ID", "0"},
                     {"SLURM_PROCID", rank},
                     {"SLURM_NTASKS", "2"},
                     {"SLURM_LOCALID", rank},
                     {"SLURM_NODELIST", "node[1]"}});
    ranks.back()["SLURM_JOB_ID"] = ranks.front()["SLURM_JOB_ID"];
  }
  expect_meeting(ranks);
}

TEST(Meet, UnderMpirun) {
  if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "no mpirun here";
  MarkedProgram program(
      words(std::string("mpirun --allow-run-as-root --oversubscribe -np 3 ") + MEET_RANKS));
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("rank 2 of 3, local rank 2 of 3, sum 3"));
}

TEST(Meet, MissingRanksAreNamed) {
  const Outcome outcome =
      MarkedProgram({MEET_RANKS, "0.3"},
                    {{"RANK", "0"}, {"WORLD_SIZE", "3"}, {"MASTER_PORT", free_port()}})
          .wait();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("1 of 3 ranks came within 0.3 s, missing: rank 1, 2"));
}

TEST(Meet, ARankThatDiesBeforeTheMeetingIsReportedByTheLauncher) {
  Arguments arguments =
      run_script("--standalone --nproc-per-node 3",
                 std::string("[ $RANK = 2 ] && kill -KILL $$; exec ") + MEET_RANKS);
  MarkedProgram program(arguments);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.exit_code, 137);
  EXPECT_THAT(outcome.err, HasSubstr("rank 2 failed first: signal 9 (SIGKILL)"));
  EXPECT_TRUE(wait_until([&] { return program.num_alive() == 0; }));
}

}  // namespace
}  // namespace lockstep::testing
