// lockstep run: how a group of ranks ends, and that nothing is left of it, whatever dies.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "engine/launch/error_file.h"
#include "tests/tools/marked_program.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

// A rank with a child that has left its session, and one that also ignores every polite signal.
constexpr const char* kRankWithChildren =
    "setsid sleep 1000 & (trap '' TERM HUP INT QUIT; setsid sleep 1000 & ) ; echo ready; "
    "exec sleep 1000";

std::size_t count(const std::string& text, const std::string& word) {
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    ++found;
  }
  return found;
}

void wait_for_ready(const MarkedProgram& program, std::size_t num_ranks) {
  EXPECT_TRUE(wait_until([&] { return count(program.out(), "ready") == num_ranks; }));
}

void expect_nothing_left(const MarkedProgram& program) {
  EXPECT_TRUE(wait_until([&] { return program.num_alive() == 0; }))
      << program.num_alive() << " processes are left";
}

// The only child of a launcher or of a guard.
pid_t child_of(pid_t process) {
  pid_t child = 0;
  const std::string id = std::to_string(process);
  std::ifstream("/proc/" + id + "/task/" + id + "/children") >> child;
  return child;
}

// Ranks with children, all ready, and the processes that look after them, which are 0 where the
// kernel does not list children in /proc. Its files are in a folder of their own.
struct Group {
  explicit Group(std::size_t num_ranks)
      : program(run_script(fmt::format("--standalone --nproc-per-node {}", num_ranks),
                           kRankWithChildren),
                {{"TMPDIR", folder.path().string()}}) {
    wait_for_ready(program, num_ranks);
    guard = child_of(program.process());
    supervisor = child_of(guard);
  }
  bool is_known() const { return supervisor != 0; }
  bool has_no_files() const { return std::filesystem::is_empty(folder.path()); }

  TempFolder folder;
  MarkedProgram program;
  pid_t guard = 0;
  pid_t supervisor = 0;
};

constexpr const char* kUnknown = "this kernel does not list children in /proc";

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

// As a script does whose main() has torch's @record: its last line on stderr says less.
TEST(RunEnd, TheErrorThatARankWroteIsReportedHereAndToAnOuterLauncher) {
  const TempFolder folder;
  const std::string outer = (folder / "outer.json").string();
  std::vector<std::string> command =
      run_script("--standalone --nproc-per-node 1",
                 "echo '{\"message\": {\"message\": \"ValueError: a\", \"extraInfo\": {}}}' > "
                 "$TORCHELASTIC_ERROR_FILE; echo $TORCHELASTIC_ERROR_FILE; echo bye >&2; exit 3");
  command.insert(command.begin(), {"/usr/bin/env", "TORCHELASTIC_ERROR_FILE=" + outer});
  MarkedProgram program(command);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("last error line: bye; its error: ValueError: a\n"));
  EXPECT_THAT(launch::read_error_file(outer), HasSubstr("[run] rank 0 failed first: exit code 3;"));
  const std::size_t begin = outcome.out.find('/');
  ASSERT_NE(begin, std::string::npos);
  const std::filesystem::path file(outcome.out.substr(begin, outcome.out.find('\n') - begin));
  EXPECT_NE(file, outer);
  EXPECT_FALSE(std::filesystem::exists(file.parent_path())) << "the launcher takes it away";
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

TEST(RunEnd, OtherRanksMaySayThemselvesWhatHappened) {
  MarkedProgram program(
      run_script("--standalone --nproc-per-node 2",
                 "if [ $RANK = 1 ]; then exit 3; fi; trap 'echo terminated; exit 9' TERM; "
                 "i=0; while [ $i -lt 20 ]; do sleep 0.01; i=$((i+1)); done; echo 'rank 1 is gone' "
                 ">&2; exit 1"));
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("[0] rank 1 is gone"));
  EXPECT_THAT(outcome.out, ::testing::Not(HasSubstr("terminated")));
}

TEST(RunEnd, StoppedAndDeafRanksAreKilled) {
  MarkedProgram program(run_script("--standalone --nproc-per-node 3 --shutdown-timeout 0.2",
                                   "case $RANK in 0) kill -STOP $$;; 1) trap '' TERM; "
                                   "while :; do sleep 1; done;; esac; exit 4"));
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_THAT(outcome.err, HasSubstr("rank 2 failed first: exit code 4"));
  expect_nothing_left(program);
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

TEST(RunEnd, RanksMayFinishTheirWorkWhenASignalComes) {
  MarkedProgram program(
      run_script("--standalone --nproc-per-node 2",
                 "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.01; done"));
  wait_for_ready(program, 2);
  program.send(SIGTERM);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.exit_code, 128 + SIGTERM);
  EXPECT_EQ(count(outcome.out, "saved"), 2u);
}

TEST(RunEnd, RanksMayTakeAsLongAsTheyNeedWhereTheTimeIsBeyondAllClocks) {
  const TempFolder folder;
  const std::string gate = (folder / "gate").string();
  MarkedProgram program(
      run_script("--standalone --nproc-per-node 2 --shutdown-timeout 1e30",
                 "trap 'echo noticed; while [ ! -e " + gate +
                     " ]; do sleep 0.01; done; echo saved; exit 0' TERM; echo ready; "
                     "while :; do sleep 0.01; done"));
  wait_for_ready(program, 2);
  program.send(SIGTERM);
  EXPECT_TRUE(wait_until([&] { return count(program.out(), "noticed") == 2; }));
  write_text(gate, "");
  EXPECT_EQ(count(program.wait().out, "saved"), 2u);
}

TEST(RunEnd, UserSignalsArePassedOnAndEndNothing) {
  MarkedProgram program(
      run_script("--standalone --nproc-per-node 2",
                 "trap 'echo checkpoint; exit 0' USR1; echo ready; while :; do sleep 0.01; done"));
  wait_for_ready(program, 2);
  program.send(SIGUSR1);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(count(outcome.out, "checkpoint"), 2u);
}

TEST(RunEnd, NohupOutlivesTheTerminal) {
  const TempFolder folder;
  const std::string gate = (folder / "gate").string();
  const std::string command = "trap '' HUP; exec " + std::string(LOCKSTEP_PROGRAM) +
                              " run --standalone --nproc-per-node 1 -- sh -c 'echo ready; "
                              "while [ ! -e " +
                              gate + " ]; do sleep 0.01; done; echo done'";
  MarkedProgram program({"sh", "-c", command});
  wait_for_ready(program, 1);
  program.send(SIGHUP);
  write_text(gate, "");
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("[0] done"));
}

TEST(RunEnd, AKilledLauncherLeavesNothing) {
  MarkedProgram program(run_script("--standalone --nproc-per-node 3", kRankWithChildren));
  wait_for_ready(program, 3);
  // Launcher, guard, supervisor, three ranks, two children of each. One that is just becoming
  // `sleep` is not seen: its environment is between two programs.
  EXPECT_TRUE(wait_until([&] { return program.num_alive() == 12; })) << program.num_alive();
  program.send(SIGKILL);
  EXPECT_EQ(program.wait().exit_code, 128 + SIGKILL);
  expect_nothing_left(program);
}

TEST(RunEnd, AKilledGuardLeavesNothing) {
  Group group(3);
  if (!group.is_known()) GTEST_SKIP() << kUnknown;
  ::kill(group.guard, SIGKILL);
  const Outcome outcome = group.program.wait();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("was killed by signal 9"));
  expect_nothing_left(group.program);
}

// Launcher, guard and supervisor; any two of them are killed at once.
TEST(RunEnd, AnyTwoOfThoseThatLookAfterTheRanksLeaveNothingWhenTheyAreKilled) {
  for (const std::array<std::size_t, 2> killed :
       {std::array<std::size_t, 2>{0, 1}, {0, 2}, {1, 2}}) {
    const Group group(3);
    if (!group.is_known()) GTEST_SKIP() << kUnknown;
    const std::array<pid_t, 3> chain{group.program.process(), group.guard, group.supervisor};
    for (const std::size_t which : killed) ::kill(chain[which], SIGSTOP);
    for (const std::size_t which : killed) ::kill(chain[which], SIGKILL);
    expect_nothing_left(group.program);
    EXPECT_TRUE(wait_until([&] { return group.has_no_files(); }));
  }
}

// By then it may have ended the supervisor, which would have done the rest.
TEST(RunEnd, ALauncherThatIsKilledWhileItEndsAGroupLeavesNothing) {
  for (int i = 0; i < 20; ++i) {
    const Group group(3);
    if (!group.is_known()) GTEST_SKIP() << kUnknown;
    ::kill(group.guard, SIGKILL);
    std::this_thread::sleep_for(std::chrono::microseconds(200 * i));
    group.program.send(SIGKILL);
    expect_nothing_left(group.program);
    EXPECT_TRUE(group.has_no_files()) << 200 * i << " us later";
  }
}

TEST(RunEnd, AStoppedSupervisorDoesNotMakeTheLauncherDeaf) {
  for (const bool is_guard : {true, false}) {
    Group group(2);
    if (!group.is_known()) GTEST_SKIP() << kUnknown;
    ::kill(is_guard ? group.guard : group.supervisor, SIGSTOP);
    group.program.send(SIGTERM);
    EXPECT_EQ(group.program.wait().exit_code, 128 + SIGTERM);
    expect_nothing_left(group.program);
  }
}

// As it waits for a rank that was stopped before it became its program.
TEST(RunEnd, ASecondSignalEndsASupervisorThatNeverAnswers) {
  Group group(2);
  if (!group.is_known()) GTEST_SKIP() << kUnknown;
  // No SIGCONT wakes a process that a debugger holds.
  if (::ptrace(PTRACE_ATTACH, group.supervisor, nullptr, nullptr) != 0) {
    GTEST_SKIP() << "this process may not debug another one";
  }
  ASSERT_EQ(::waitpid(group.supervisor, nullptr, __WALL), group.supervisor);
  group.program.send(SIGTERM);
  EXPECT_TRUE(wait_until([&] {
    ::waitpid(group.supervisor, nullptr, WNOHANG | __WALL);  // or its end is told this one alone
    group.program.send(SIGTERM);
    return group.program.num_alive() == 0;
  }));
  EXPECT_EQ(group.program.wait().exit_code, 128 + SIGTERM);
  EXPECT_TRUE(group.has_no_files());
}

// Which would take minutes otherwise.
TEST(RunEnd, ASecondSignalShortensTheWait) {
  MarkedProgram program(
      run_script("--standalone --nproc-per-node 2 --shutdown-timeout 300",
                 "trap 'echo deaf' INT; echo ready; while :; do sleep 0.01; done"));
  wait_for_ready(program, 2);
  program.send(SIGINT);
  EXPECT_TRUE(wait_until([&] { return count(program.out(), "deaf") == 2; }));
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
  EXPECT_EQ(count(outcome.err, "[dataset] expected"), 1u) << outcome.err;
  EXPECT_THAT(outcome.err,
              HasSubstr("failed first: exit code 2; its last error line: lockstep: ["));
  std::size_t num_logs = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(logs.path())) {
    if (file.path().filename() == "stderr.log") {
      num_logs += count(read_text(file.path()), "[dataset] expected");
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
  EXPECT_EQ(count(outcome.err, "[dataset] expected"), 2u) << outcome.err;
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
  EXPECT_EQ(count(once.err, "starting all ranks again"), 1u);
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

// Standard output is a pipe that nobody reads, and the launcher waits to write the rest.
TEST(RunEnd, ASignalEndsTheWaitForAReaderThatNeverReads) {
  const TempFolder folder;
  const std::string done = (folder / "done").string();
  const std::string command = "exec " + std::string(LOCKSTEP_PROGRAM) +
                              " run --standalone --nproc-per-node 1 -- sh -c 'yes | head -c "
                              "150000; touch " +
                              done + "' > >(exec sleep 1000)";
  MarkedProgram program({"bash", "-c", command});
  EXPECT_TRUE(wait_until([&] { return std::filesystem::exists(done); }));
  EXPECT_TRUE(wait_until([&] { return program.num_alive() == 4; }));  // the rank has gone
  program.send(SIGTERM);
  ASSERT_TRUE(wait_until([&] { return program.num_alive() == 1; }));
  EXPECT_EQ(program.wait().exit_code, 128 + SIGTERM);
}

// Processes of somebody else have the rank's stdout too, and write for ever: the launcher cannot
// kill them.
TEST(RunEnd, StrangersThatKeepARanksOutputOpenDoNotKeepTheLauncher) {
  const TempFolder folder;
  const std::string gate = (folder / "gate").string();
  MarkedProgram program(
      run_script("--standalone --nproc-per-node 1",
                 "echo pid=$$=; while [ ! -e " + gate + " ]; do sleep 0.01; done"));
  EXPECT_TRUE(wait_until([&] { return count(program.out(), "=") == 2; }));
  const std::string out = program.out();
  const std::size_t begin = out.find('=') + 1;
  const std::string rank = out.substr(begin, out.find('=', begin) - begin);
  const std::string script = "exec > /proc/$0/fd/1; yes & yes & yes & exec yes";
  const MarkedProgram strangers({"sh", "-c", script, rank});
  EXPECT_TRUE(wait_until([&] { return count(program.out(), "[0] y") > 0; }));
  write_text(gate, "");
  ASSERT_TRUE(wait_until([&] { return program.num_alive() == 0; }));
  EXPECT_EQ(program.wait().exit_code, 0);
}

TEST(RunEnd, SixtyFourRanksComeAndGo) {
  const Outcome outcome =
      MarkedProgram({LOCKSTEP_PROGRAM, "run", "--standalone", "--nproc-per-node", "64", "true"})
          .wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

}  // namespace
}  // namespace lockstep::testing
