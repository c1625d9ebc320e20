// How the table and the run file say that a row was not measured alone.
#include "tools/report/contention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/runtime/logical_device.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
  row.placement.devices = {Device{DeviceType::cuda, 0}};
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

constexpr const char* kSomeWork =
    "--device cpu --model mlp:64-512-512-10 --steps 30 --json run.json";

TEST(Contention, ARowBesideBusyProcessesIsMarked) {
  const lockstep::testing::TempFolder folder;
  const BusyCores others;
  const lockstep::testing::Outcome outcome = lockstep::testing::run_lockstep(
      lockstep::testing::words(std::string("compare --modes ddp --devices 2 ") + kSomeWork),
      folder.path());
  lockstep::testing::expect_success(outcome);
  const auto run = lockstep::testing::read_json(folder / "run.json");
  for (const auto& row : run["rows"]) {
    EXPECT_EQ(row["contended"], true) << row["mode"];
  }
  EXPECT_THAT(outcome.out, HasSubstr("\nsingle* "));
  EXPECT_THAT(outcome.out, HasSubstr("\n* contended: another process used the cores"));
}

TEST(Contention, ARowOfProcessesIsMarkedToo) {
  const lockstep::testing::TempFolder folder;
  const BusyCores others;
  lockstep::testing::expect_success(lockstep::testing::run_lockstep(
      lockstep::testing::words(std::string("compare --modes ddp --ranks processes --devices 4 ") +
                               kSomeWork),
      folder.path()));
  const auto rows = lockstep::testing::read_json(folder / "run.json")["rows"];
  EXPECT_EQ(rows[1]["contended"], true);
}

}  // namespace
}  // namespace lockstep::tools
