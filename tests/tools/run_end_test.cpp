// lockstep run: how a group of ranks ends, and that nothing is left of it, whatever dies.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

// A rank with a child that has left its session, and one that also ignores every polite signal.
constexpr const char* kRankWithChildren =
    "setsid sleep 1000 & (trap '' TERM HUP INT QUIT; setsid sleep 1000 & ) ; echo ready; "
    "exec sleep 1000";

void wait_for_ready(const MarkedProgram& program, std::size_t num_ranks) {
  EXPECT_TRUE(wait_until([&] { return count_of(program.out(), "ready") == num_ranks; }));
}

void expect_nothing_left(const MarkedProgram& program) {
  EXPECT_TRUE(wait_until([&] { return program.num_alive() == 0; }))
      << program.num_alive() << " processes are left";
}

TEST(RunEnd, TheFirstFailureIsReportedAndTheOthersAreEnded) {
  MarkedProgram program(run_script("--standalone --nproc-per-node 3",
                                   "if [ $RANK = 1 ]; then echo 'first line' >&2; "
                                   "echo 'ValueError: loss is nan' >&2; exit 7; fi; " +
                                       std::string(kRankWithChildren)));
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.exit_code, 7);
  EXPECT_THAT(outcome.err, HasSubstr("lockstep: [run] rank 1 failed first: exit code 7; its last "
                                     "error line: ValueError: loss is nan\n"));
  expect_nothing_left(program);
}

TEST(RunEnd, ASignalIsNamedAndTheLogToo) {
  const TempFolder logs;
  MarkedProgram program(
      run_script("--standalone --nproc-per-node 2 --log-dir " + logs.path().string(),
                 "if [ $RANK = 1 ]; then echo dying >&2; kill -KILL $$; fi; exec sleep 1000"));
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.exit_code, 128 + SIGKILL);
  EXPECT_THAT(outcome.err,
              HasSubstr("rank 1 failed first: signal 9 (SIGKILL); its last error line: "
                        "dying; its log: " +
                        logs.path().string()));
}

// As the workers of a data loader do. Rank 0 fails because rank 1 has ended.
TEST(RunEnd, TheFirstFailureIsKnownAlsoWhereAChildOfItsRankHoldsStderrOpen) {
  MarkedProgram program(
      run_script("--standalone --nproc-per-node 2",
                 "if [ $RANK = 1 ]; then sleep 1000 & echo $$ > new; mv new rank_1; exit 7; fi; "
                 "while [ ! -e rank_1 ]; do :; done; read rank_1 < rank_1; "
                 "while kill -0 $rank_1 2> /dev/null; do :; done; exit 1"));
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.exit_code, 7);
  EXPECT_THAT(outcome.err, HasSubstr("rank 1 failed first: exit code 7"));
}

TEST(RunEnd, WhatRanksLeaveBehindIsEndedAfterSuccessToo) {
  MarkedProgram program(
      run_script("--standalone --nproc-per-node 2", "setsid sleep 1000 & echo done"));
  EXPECT_EQ(program.wait().exit_code, 0);
  expect_nothing_left(program);
}

class SignalToLauncher : public ::testing::TestWithParam<int> {};

TEST_P(SignalToLauncher, IsPassedOnAndEndsEverything) {
  MarkedProgram program(run_script("--standalone --nproc-per-node 2", kRankWithChildren));
  wait_for_ready(program, 2);
  program.send(GetParam());
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.exit_code, 128 + GetParam());
  EXPECT_THAT(outcome.err, HasSubstr("lockstep: [run] ended by SIG"));
  expect_nothing_left(program);
}

INSTANTIATE_TEST_SUITE_P(Signals, SignalToLauncher, ::testing::Values(SIGINT, SIGTERM, SIGHUP),
                         [](const auto& test) { return std::string(::sigabbrev_np(test.param)); });

TEST(RunEnd, UserSignalsArePassedOnAndEndNothing) {
  MarkedProgram program(
      run_script("--standalone --nproc-per-node 2",
                 "trap 'echo checkpoint; exit 0' USR1; echo ready; while :; do sleep 0.01; done"));
  wait_for_ready(program, 2);
  program.send(SIGUSR1);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(count_of(outcome.out, "checkpoint"), 2u);
}

TEST(RunEnd, AKilledLauncherLeavesNothing) {
  MarkedProgram program(run_script("--standalone --nproc-per-node 3", kRankWithChildren));
  wait_for_ready(program, 3);
  // Launcher, supervisor, three ranks, two children of each. One that is just becoming `sleep` is
  // not seen: its environment is between two programs.
  EXPECT_TRUE(wait_until([&] { return program.num_alive() == 11; })) << program.num_alive();
  program.send(SIGKILL);
  EXPECT_EQ(program.wait().exit_code, 128 + SIGKILL);
  expect_nothing_left(program);
}

TEST(RunEnd, AKilledSupervisorLeavesNothing) {
  MarkedProgram program(run_script("--standalone --nproc-per-node 3", kRankWithChildren));
  wait_for_ready(program, 3);
  const std::string id = std::to_string(program.process());
  pid_t supervisor = 0;
  std::ifstream("/proc/" + id + "/task/" + id + "/children") >> supervisor;
  if (supervisor == 0) GTEST_SKIP() << "this kernel does not list children in /proc";
  ::kill(supervisor, SIGKILL);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("was killed by signal 9"));
  expect_nothing_left(program);
}

// Which would take minutes otherwise.
TEST(RunEnd, ASecondSignalShortensTheWait) {
  MarkedProgram program(
      run_script("--standalone --nproc-per-node 2 --shutdown-timeout 300",
                 "trap 'echo deaf' INT; echo ready; while :; do sleep 0.01; done"));
  wait_for_ready(program, 2);
  program.send(SIGINT);
  EXPECT_TRUE(wait_until([&] { return count_of(program.out(), "deaf") == 2; }));
  EXPECT_TRUE(wait_until([&] {
    program.send(SIGINT);
    return program.num_alive() <= 1;  // this process's child
  }));
  EXPECT_EQ(program.wait().exit_code, 128 + SIGINT);
  expect_nothing_left(program);
}

TEST(RunEnd, AFaultIsOneLineAndNotOneOfEveryRank) {
  const TempFolder logs;
  const std::string rank = std::string(LOCKSTEP_PROGRAM) + " train --dataset none --parallel ddp";
  MarkedProgram program(words(std::string(LOCKSTEP_PROGRAM) +
                              " run --standalone --nproc-per-node 3 --log-dir " +
                              logs.path().string() + " -t 3 -- " + rank));
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(count_of(outcome.err, "[dataset] expected"), 1u) << outcome.err;
  EXPECT_THAT(outcome.err,
              HasSubstr("failed first: exit code 2; its last error line: lockstep: ["));
  std::size_t num_logs = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(logs.path())) {
    if (file.path().filename() == "stderr.log") {
      num_logs += count_of(read_text(file.path()), "[dataset] expected");
    }
  }
  EXPECT_EQ(num_logs, 3u);
}

TEST(RunEnd, AnErrorThatARankGetsOverIsShown) {
  MarkedProgram program(
      run_script("--standalone --nproc-per-node 2",
                 std::string(LOCKSTEP_PROGRAM) + " train --parallel ddp --dataset none || true"));
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(count_of(outcome.err, "[dataset] expected"), 2u) << outcome.err;
}

TEST(RunEnd, AllRanksStartAgainAsOftenAsAllowed) {
  const std::string script = "[ $RANK = 0 ] || [ $TORCHELASTIC_RESTART_COUNT = 2 ] || exit 5";
  const Outcome twice =
      MarkedProgram(run_script("--standalone --nproc-per-node 2 --max-restarts 2", script)).wait();
  EXPECT_EQ(twice.exit_code, 0);
  EXPECT_THAT(twice.err, HasSubstr("exit code 5; starting all ranks again (restart 1 of 2)"));
  EXPECT_THAT(twice.err, HasSubstr("(restart 2 of 2)"));
  const Outcome once =
      MarkedProgram(run_script("--standalone --nproc-per-node 2 --max-restarts 1", script)).wait();
  EXPECT_EQ(once.exit_code, 5);
  EXPECT_EQ(count_of(once.err, "starting all ranks again"), 1u);
}

TEST(RunEnd, AReaderThatLeavesEndsTheGroup) {
  const std::string command = std::string(LOCKSTEP_PROGRAM) +
                              " run --standalone --nproc-per-node 2 -- yes | head -2; exit "
                              "${PIPESTATUS[0]}";
  MarkedProgram program({"bash", "-c", command});
  EXPECT_EQ(program.wait().exit_code, 128 + SIGPIPE);
  expect_nothing_left(program);
}

TEST(RunEnd, ARankThatOnlyReadsSlowlyIsNotInTheWay) {
  // The reader sleeps while 4 MiB wait for it: ranks wait too, and nothing is lost.
  const std::string command = std::string(LOCKSTEP_PROGRAM) +
                              " run --standalone --nproc-per-node 2 -- sh -c 'yes 12345678901 | "
                              "head -100000' | (sleep 0.2; wc -l)";
  EXPECT_EQ(MarkedProgram({"bash", "-c", command}).wait().out, "200000\n");
}

// A shell that execs the launcher leaves its tee as a child of the launcher.
TEST(RunEnd, AReaderThatIsItsChildReadsAll) {
  const TempFolder folder;
  const std::string read = (folder / "read").string();
  const std::string command = "exec " + std::string(LOCKSTEP_PROGRAM) +
                              " run --standalone --nproc-per-node 1 -- sh -c 'yes | head -1000' "
                              "> >(sleep 0.2; wc -l > " +
                              read + ")";
  MarkedProgram program({"bash", "-c", command});
  EXPECT_EQ(program.wait().exit_code, 0);
  EXPECT_TRUE(wait_until([&] { return read_text(read) == "1000\n"; }));
}

// Standard output is a pipe that is never read, and the launcher waits to write the rest.
TEST(RunEnd, ASecondSignalEndsTheWaitForAReaderThatNeverReads) {
  const TempFolder folder;
  const std::string done = (folder / "done").string();
  const std::string command = "exec " + std::string(LOCKSTEP_PROGRAM) +
                              " run --standalone --nproc-per-node 1 -- sh -c 'touch " + done +
                              "; exec yes' > >(exec sleep 1000)";
  MarkedProgram program({"bash", "-c", command});
  EXPECT_TRUE(wait_until([&] { return std::filesystem::exists(done); }));
  EXPECT_TRUE(wait_until([&] {
    program.send(SIGTERM);
    return program.num_alive() == 1;
  }));
  EXPECT_EQ(program.wait().exit_code, 128 + SIGTERM);
}

}  // namespace
}  // namespace lockstep::testing
