// Words that the program does not take (mistakes.txt), and what help and the small commands print.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

TEST(Mistakes, AreNamedInOneLine) {
  std::size_t num_mistakes = 0;
  for (std::string line : lines_of(read_text(LOCKSTEP_MISTAKES))) {
    if (line.starts_with('#')) continue;
    SCOPED_TRACE(line);
    int exit_code = 2;
    if (line.starts_with("1: ")) {
      exit_code = 1;
      line.erase(0, 3);
    }
    const std::size_t arrow = line.find("-> ");
    ASSERT_NE(arrow, std::string::npos);
    std::vector<std::string> phrases;
    for (std::size_t begin = arrow + 3; begin < line.size();) {
      const std::size_t end = std::min(line.find(" & ", begin), line.size());
      phrases.push_back(line.substr(begin, end - begin));
      begin = end + 3;
    }
    expect_rejected(run_command(line.substr(0, arrow)), exit_code, phrases);
    ++num_mistakes;
  }
  EXPECT_GT(num_mistakes, 150u);
}

TEST(CommandLine, AnEmptyValueIsAMistakeAndNotADefault) {
  expect_rejected(run_lockstep({"train", "--batch", ""}), 2, {"[--batch] the value is empty"});
}

TEST(CommandLine, HelpNamesEveryCommandAndExitsWithZero) {
  const Outcome help = run_lockstep({"--help"});
  expect_success(help);
  for (const char* command : {"train", "compare", "bench", "devices", "env", "grade"}) {
    EXPECT_THAT(help.out, HasSubstr(command));
  }
  run_well("train --help");
}

}  // namespace
}  // namespace lockstep::testing
