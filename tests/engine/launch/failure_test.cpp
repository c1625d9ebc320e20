// Which failure is reported, and in which words.
#include "engine/launch/failure.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "engine/launch/error_file.h"
#include "tests/support/temp_folder.h"

namespace lockstep::launch {
namespace {

// A wait status as the kernel gives it.
int exited_with(int code) {
  return code << 8;
}
int ended_by(int signal) {
  return signal;
}

Worker ended(int rank, int wait_status, std::size_t end_number) {
  Worker worker;
  worker.rank = rank;
  worker.wait_status = wait_status;
  worker.end_number = end_number;
  return worker;
}

TEST(Failure, TheFirstIsTheOneThatEndedFirst) {
  const Worker early = ended(3, exited_with(1), 0);
  const Worker late = ended(0, exited_with(7), 1);
  EXPECT_TRUE(failed_before(early, late));
  EXPECT_FALSE(failed_before(late, early));
}

TEST(Failure, AKillIsNoAnswerToAnotherRanksEnd) {
  const Worker early = ended(0, exited_with(1), 0);
  EXPECT_TRUE(failed_before(ended(1, ended_by(SIGKILL), 1), early));
  EXPECT_TRUE(failed_before(ended(1, ended_by(SIGSEGV), 1), early));
  EXPECT_FALSE(failed_before(ended(1, ended_by(SIGABRT), 1), early));
  EXPECT_FALSE(failed_before(ended(1, ended_by(SIGPIPE), 1), early));
}

TEST(Failure, CodesAreThoseOfAShell) {
  EXPECT_EQ(shell_code(exited_with(0)), 0);
  EXPECT_EQ(shell_code(exited_with(7)), 7);
  EXPECT_EQ(shell_code(ended_by(SIGKILL)), 137);
}

TEST(Failure, IsDescribedWithItsLastErrorLine) {
  Worker worker = ended(2, exited_with(7), 0);
  EXPECT_EQ(describe_failure(worker), "[run] rank 2 failed first: exit code 7");
  worker.wait_status = ended_by(SIGTERM);
  worker.last_error_line = "out of luck";
  EXPECT_EQ(describe_failure(worker),
            "[run] rank 2 failed first: signal 15 (SIGTERM); its last error line: out of luck");
}

TEST(Failure, IsDescribedWithItsErrorFileWhereThatSaysMore) {
  const testing::TempFolder folder;
  Worker worker = ended(2, exited_with(1), 0);
  worker.error_file = (folder / "error.json").string();
  write_error_file({{kErrorFileVariable, worker.error_file}}, "ValueError: loss is nan");
  worker.last_error_line = "ValueError: loss is nan";
  EXPECT_EQ(describe_failure(worker),
            "[run] rank 2 failed first: exit code 1; its last error line: ValueError: loss is nan");
  worker.last_error_line = "Exception ignored in atexit";
  EXPECT_EQ(describe_failure(worker),
            "[run] rank 2 failed first: exit code 1; its last error line: Exception ignored in "
            "atexit; its error: ValueError: loss is nan");
}

TEST(Failure, SignalsWithoutANameAreNumbers) {
  EXPECT_EQ(signal_name(SIGINT), "SIGINT");
  EXPECT_EQ(signal_name(40), "signal 40");
}

}  // namespace
}  // namespace lockstep::launch
