#include "tools/cli/command.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::tools {
namespace {

// What a program with the commands train (--devices, --plan) and bench says to the words.
std::string problem_with(std::vector<std::string> words) {
  Program program("lockstep", "1.0", "a program");
  Command train = program.add_command("train", "trains");
  program.add_command("bench", "measures");
  int devices = 1;
  std::string plan = "auto";
  train.add_option("--devices", devices, "how many");
  train.add_option("--plan", plan, "which").one_of({"auto", "ring", "tree"});
  return program.parse(std::move(words));
}

TEST(CommandLineMistake, AnUnknownCommandIsNamedWithTheNearest) {
  EXPECT_EQ(problem_with({"tarin"}),
            "unknown command 'tarin'; use one of: train, bench; did you mean 'train'? (see "
            "lockstep --help)");
  EXPECT_EQ(problem_with({"nonsense"}),
            "unknown command 'nonsense'; use one of: train, bench (see lockstep --help)");
  EXPECT_EQ(problem_with({}),
            "a command is missing; use one of: train, bench (see lockstep --help)");
}

TEST(CommandLineMistake, AnUnknownFlagIsNamedWithTheNearest) {
  EXPECT_EQ(problem_with({"train", "--devces", "4"}),
            "unknown flag '--devces'; did you mean '--devices'? (see lockstep --help)");
  EXPECT_EQ(problem_with({"train", "--devces=4"}),
            "unknown flag '--devces'; did you mean '--devices'? (see lockstep --help)");
  EXPECT_EQ(problem_with({"train", "--frobnicate"}),
            "unknown flag '--frobnicate' (see lockstep --help)");
}

TEST(CommandLineMistake, UnexpectedArgumentsAreNamedInTheirOrder) {
  EXPECT_EQ(problem_with({"train", "one", "two", "three"}),
            "unexpected arguments 'one two three' (see lockstep --help)");
}

TEST(CommandLineMistake, AValueOutsideAClosedSetIsNamedWithTheNearest) {
  EXPECT_EQ(
      problem_with({"train", "--plan", "rign"}),
      "--plan: 'rign' is none of auto, ring, tree; did you mean 'ring'? (see lockstep --help)");
}

TEST(CommandLineMistake, HelpDoesNotExcuseIt) {
  EXPECT_EQ(problem_with({"nonsense", "--help"}),
            "unknown command 'nonsense'; use one of: train, bench (see lockstep --help)");
  EXPECT_EQ(problem_with({"train", "--devces", "--help"}),
            "unknown flag '--devces'; did you mean '--devices'? (see lockstep --help)");
  EXPECT_EQ(problem_with({"train", "--help"}), "");
}

}  // namespace
}  // namespace lockstep::tools
