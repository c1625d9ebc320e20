// A terminal shows progress while a command works, and nothing else does.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "tests/tools/run_lockstep.h"

namespace lockstep::tools {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// All that a program writes to a terminal.
std::string on_a_terminal(const std::string& command) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0) return "no terminal";
  const std::string name = ::ptsname(terminal);
  const pid_t child = ::fork();
  if (child == 0) {
    const int other_end = ::open(name.c_str(), O_RDWR | O_NOCTTY);
    ::dup2(other_end, STDOUT_FILENO);
    ::dup2(other_end, STDERR_FILENO);
    const testing::Arguments arguments = testing::words(command);
    std::vector<char*> words{const_cast<char*>(LOCKSTEP_PROGRAM)};
    for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    ::execv(LOCKSTEP_PROGRAM, words.data());
    ::_exit(127);
  }
  std::string text;
  char bytes[4096];
  while (true) {  // EIO: the other end was closed
    const ssize_t count = ::read(terminal, bytes, sizeof bytes);
    if (count > 0) text.append(bytes, static_cast<std::size_t>(count));
    if (count == 0 || (count < 0 && errno == EIO)) break;
  }
  ::close(terminal);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << text;
  return text;
}

constexpr const char* kCleared = "\r\033[K";

TEST(Progress, ATerminalShowsTheRowAndClearsItBeforeTheLineOfTheTable) {
  const std::string text = on_a_terminal("compare --modes ddp --devices 2 --steps 3 --device cpu");
  EXPECT_THAT(text, HasSubstr("\rrow 1 of 2: single, step 0 of 3"));
  EXPECT_THAT(text, HasSubstr("\rrow 2 of 2: ddp x2, step 0 of 3"));
  EXPECT_THAT(text, HasSubstr(std::string(kCleared) + "single"));
  EXPECT_THAT(text, HasSubstr(std::string(kCleared) + "ddp"));
  EXPECT_THAT(text, EndsWith(".\r\n"));
}

TEST(Progress, BenchShowsWhichRowIsMeasured) {
  EXPECT_THAT(on_a_terminal("bench step --device cpu --seconds 0.01 --batch 8,16"),
              HasSubstr("\rrow 2 of 2: mlp:784-256-128-10, batch 16"));
}

TEST(Progress, WhereStderrIsNoTerminalNothingIsWritten) {
  EXPECT_THAT(testing::run_well("compare --modes ddp --devices 2 --steps 3"), Not(HasSubstr("\r")));
}

}  // namespace
}  // namespace lockstep::tools
