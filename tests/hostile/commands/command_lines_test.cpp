// Whatever the command line: exit code 0, 1 or 2, one line that says why, no crash, no hang.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "tests/hostile/commands/command_lines.h"
#include "tests/hostile/commands/run_briefly.h"
#include "tests/hostile/damage.h"
#include "tests/hostile/rounds.h"
#include "tests/support/temp_folder.h"

namespace lockstep::testing {
namespace {

std::string last_line(const std::string& text) {
  if (text.empty()) return {};
  const std::size_t newline = text.rfind('\n', text.size() - 2);
  return text.substr(newline == std::string::npos ? 0 : newline + 1);
}

TEST(CommandLines, AreCarriedOutOrRefusedInOneLine) {
  const TempFolder folder;
  ASSERT_EQ(run_briefly(words("train --steps 1 --save saved"), folder.path()).exit_code, 0);
  const std::string weights = read_text(folder / "saved");
  std::array<std::size_t, 3> num_ended{};  // by exit code
  for (Rounds round(200); round.go_on() && !HasFailure(); round.next()) {
    write_text(folder / "damaged", damaged(weights, round.seed()));
    const std::vector<std::string> line = random_command_line(round.seed());
    const Outcome outcome = run_briefly(line, folder.path());
    SCOPED_TRACE(fmt::format("seed {}: {}", round.seed(), shell_line(line)));
    ASSERT_THAT(outcome.exit_code, ::testing::AllOf(::testing::Ge(0), ::testing::Le(2)))
        << outcome.err;
    ++num_ended[static_cast<std::size_t>(outcome.exit_code)];
    if (outcome.exit_code == 0) continue;
    EXPECT_THAT(last_line(outcome.err), ::testing::StartsWith("lockstep: ")) << outcome.err;
    EXPECT_THAT(outcome.err, ::testing::EndsWith("\n"));
    if (outcome.exit_code == 2) {
      EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
    }
  }
  EXPECT_GT(num_ended[0], 0u);
  EXPECT_GT(num_ended[2], 0u);
  report_row("command lines and environments", num_ended[0] + num_ended[1] + num_ended[2],
             fmt::format("{} carried out, {} failed, {} refused, in one line each", num_ended[0],
                         num_ended[1], num_ended[2]));
}

}  // namespace
}  // namespace lockstep::testing
