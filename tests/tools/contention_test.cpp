// When a measurement counts as disturbed, and how the table and the run file say so.
#include "tools/record/contention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/runtime/logical_device.h"
#include "tests/support/fake_nvidia_smi/fake_machine.h"
#include "tests/tools/run_lockstep.h"
#include "tools/devices/nvidia_smi.h"

namespace lockstep::tools {
namespace {

using lockstep::testing::fake_uuid;
using lockstep::testing::FakeMachine;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kStranger = 1 << 30;  // beyond the largest number that Linux gives
constexpr int kOther = kStranger + 1;

TEST(AreRelatives, AreAncestorsAndDescendants) {
  EXPECT_TRUE(are_relatives(getpid(), getpid()));
  EXPECT_TRUE(are_relatives(getppid(), getpid()));
  EXPECT_FALSE(are_relatives(kStranger, getpid()));
}

// The verdict after samples between which the processes on GPU 0 change.
std::optional<bool> verdict_over(const std::vector<std::vector<int>>& pids_of_samples) {
  FakeMachine machine(2);
  GpuContentionProbe probe({fake_uuid(0)});
  for (const std::vector<int>& pids : pids_of_samples) {
    machine.set_processes(0, pids);
    probe.sample();
  }
  return probe.verdict();
}

// In a container nvidia-smi gives other numbers than the kernel gives this process.
TEST(GpuContentionProbe, IsFalseWhileOnlyThisJobUsesTheGpu) {
  EXPECT_EQ(verdict_over({{}, {getpid()}}), false);
  EXPECT_EQ(verdict_over({{getppid()}, {getpid(), getppid()}}), false);
  EXPECT_EQ(verdict_over({{}, {kStranger}}), false) << "one process alone is this one";
}

TEST(GpuContentionProbe, IsTrueWhenAStrangerUsesItInAnySample) {
  EXPECT_EQ(verdict_over({{getpid()}, {getpid(), kStranger}}), true);
  EXPECT_EQ(verdict_over({{kStranger}, {getpid()}}), true);
}

TEST(GpuContentionProbe, LooksAtItsOwnGpusOnly) {
  FakeMachine machine(2);
  machine.set_processes(0, {getpid()});
  machine.set_processes(1, {kStranger});
  const auto verdict_of = [](const std::vector<std::string>& uuids) {
    GpuContentionProbe probe(uuids);
    probe.sample();
    return probe.verdict();
  };
  EXPECT_EQ(verdict_of({}), false);
  EXPECT_EQ(verdict_of({fake_uuid(0)}), false);
  EXPECT_EQ(verdict_of({fake_uuid(0), fake_uuid(1)}), true);
}

TEST(GpuContentionProbe, CannotTellWhereThisProcessIsNotListedOrNvidiaSmiSaysNothing) {
  EXPECT_EQ(verdict_over({{}, {kStranger, kOther}}), std::nullopt);
  EXPECT_EQ(verdict_over({{kOther}, {kStranger}}), std::nullopt);
  EXPECT_EQ(verdict_over({{}, {}}), std::nullopt);
  EXPECT_EQ(verdict_over({}), std::nullopt) << "without a sample";
  FakeMachine machine(1);
  machine.gpu(0).erase("processes");
  machine.publish();
  GpuContentionProbe probe({fake_uuid(0)});
  probe.sample();
  EXPECT_EQ(probe.verdict(), std::nullopt);
  FakeMachine::hide_nvidia_smi();
  GpuContentionProbe without({fake_uuid(0)});
  without.sample();
  EXPECT_EQ(without.verdict(), std::nullopt);
}

RunRow row_with(std::optional<bool> contended) {
  RunRow row;
  row.contended = contended;
  return row;
}

TEST(Contention, ADisturbedRowIsMarkedAndTheMarkIsExplainedOnce) {
  EXPECT_EQ(contention_mark(row_with(true)), "*");
  EXPECT_THAT(contention_notes({row_with(false), row_with(true), row_with(true)}),
              ElementsAre("* contended: another process used the cores meanwhile, so times may be "
                          "too long"));
}

TEST(Contention, WhatNobodyCanTellIsNeitherYesNorNo) {
  EXPECT_EQ(contention_mark(row_with(std::nullopt)), "?");
  EXPECT_THAT(contention_notes({row_with(std::nullopt), row_with(true)}),
              ElementsAre(HasSubstr("* contended: "), HasSubstr("/proc/stat does not say")));
}

TEST(Contention, NotesSpeakOfWhatTheRowsRanOn) {
  RunRow row = row_with(true);
  row.is_on_cores = false;
  EXPECT_THAT(contention_notes({row}), ElementsAre(HasSubstr("used the GPU meanwhile")));
  row.contended.reset();
  EXPECT_THAT(contention_notes({row}), ElementsAre(HasSubstr("nvidia-smi does not say")));
}

// Processes that want every core for as long as this object lives.
class BusyCores {
 public:
  BusyCores() {
    for (std::size_t i = 0; i < 2 * runtime::num_cores(); ++i) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (true) asm volatile("");
      }
      children_.push_back(child);
    }
  }
  ~BusyCores() {
    for (const pid_t child : children_) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
  }
  BusyCores(const BusyCores&) = delete;
  BusyCores& operator=(const BusyCores&) = delete;

 private:
  std::vector<pid_t> children_;
};

const std::string kSomeWork =
    "compare --device cpu --model mlp:64-512-512-10 --steps 30 --modes ddp --devices ";

TEST(Contention, ARowBesideBusyProcessesIsMarked) {
  const testing::TempFolder folder;
  const BusyCores others;
  const std::string out = testing::run_well(kSomeWork + "2 --json run.json", folder.path());
  const auto run = testing::read_json(folder / "run.json");
  for (const auto& row : run["rows"]) {
    EXPECT_EQ(row["contended"], true) << row["mode"];
  }
  EXPECT_THAT(out, HasSubstr("\nsingle* "));
  EXPECT_THAT(out, HasSubstr("\n* contended: another process used the cores"));
}

TEST(Contention, ARowOfProcessesIsMarkedToo) {
  const BusyCores others;
  const auto run = testing::run_file_of(kSomeWork + "4 --ranks processes");
  EXPECT_EQ(run["rows"][1]["contended"], true);
}

}  // namespace
}  // namespace lockstep::tools
