// --help, and the width of what the small commands print.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

struct Group {
  std::string title;
  std::vector<std::string> flags;  // the first name of each
};

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

void expect_narrow(const std::string& text) {
  for (const std::string& line : lines_of(text)) EXPECT_LE(line.size(), 80u) << line;
}

// The groups of flags, and a group of commands if there are some.
std::vector<Group> groups_of(const std::string& help) {
  std::vector<Group> groups;
  bool is_after_gap = false;
  for (const std::string& line : lines_of(help)) {
    const bool is_entry = line.starts_with("  ") && line.size() > 2 && line[2] != ' ';
    if (is_after_gap && !line.empty() && line[0] != ' ') groups.push_back({line, {}});
    if (is_entry && !groups.empty()) {
      groups.back().flags.push_back(line.substr(2, line.find_first_of(" ,", 2) - 2));
    }
    is_after_gap = line.empty();
  }
  return groups;
}

std::string help_of(const std::string& command) {
  const Outcome outcome = run_lockstep(words(command + " --help"));
  expect_success(outcome);
  return outcome.out;
}

// Every command, such as "bench step", below one.
std::vector<std::string> commands_below(const std::string& parent) {
  std::vector<std::string> commands;
  for (const Group& group : groups_of(help_of(parent))) {
    if (group.title != "Commands") continue;
    for (const std::string& name : group.flags) {
      const std::string command = parent.empty() ? name : parent + " " + name;
      commands.push_back(command);
      for (const std::string& below : commands_below(command)) commands.push_back(below);
    }
  }
  return commands;
}

TEST(Help, OfEveryCommandFitsIn80ColumnsAndNamesValuesAsPeopleWriteThem) {
  std::vector<std::string> commands = commands_below("");
  EXPECT_GT(commands.size(), 19u);
  commands.push_back("");
  for (const std::string& command : commands) {
    SCOPED_TRACE(command);
    const std::string help = help_of(command);
    expect_narrow(help);
    EXPECT_THAT(help, HasSubstr("usage: lockstep"));
    for (const char* word :
         {" TEXT:", " INT", " FLOAT", "Excludes", "Needs:", "Other flags", "[]"}) {
      EXPECT_THAT(help, Not(HasSubstr(word)));
    }
  }
}

TEST(Help, OfLongCommandsHasTenCommonFlagsFirstAndTheOthersInGroups) {
  for (const char* command : {"train", "compare", "run", "bench all-reduce", "predict"}) {
    SCOPED_TRACE(command);
    const std::vector<Group> groups = groups_of(help_of(command));
    ASSERT_GE(groups.size(), 5u);
    EXPECT_EQ(groups[0].title, "Most used");
    EXPECT_THAT(groups[0].flags, SizeIs(10));
  }
  std::vector<std::string> titles;
  std::size_t num_flags = 0;
  for (const Group& group : groups_of(help_of("bench step"))) {
    titles.push_back(group.title);
    num_flags += group.flags.size();
  }
  EXPECT_EQ(num_flags, 10u);
  EXPECT_THAT(titles, ElementsAre("What to train", "On what", "How fast", "What to write"));
}

TEST(Help, OfTrainSaysChoicesAndDefaults) {
  const std::string help = help_of("train");
  EXPECT_THAT(help, HasSubstr("--optimizer sgd|adamw   the rule that updates the weights (default: "
                              "sgd)"));
  EXPECT_THAT(help, HasSubstr("--augment crop|flip|crop,flip\n"));
  EXPECT_THAT(help, HasSubstr("--save FILE "));
}

}  // namespace
}  // namespace lockstep::testing
