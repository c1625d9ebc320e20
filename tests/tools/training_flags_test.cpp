// The table of the training flags, and what is made of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/run_lockstep.h"
#include "tools/cli/training_flags.h"

namespace lockstep::tools {
namespace {

using ::testing::HasSubstr;
using testing::words;

TEST(TrainingFlags, AreAllInTheHelpOfTrainAndMostInThatOfCompare) {
  const std::string train = testing::run_lockstep(words("train --help")).out;
  const std::string compare = testing::run_lockstep(words("compare --help")).out;
  for (const TrainingFlag& flag : training_flags()) {
    EXPECT_THAT(train, HasSubstr("  " + flag.name + " ")) << flag.name;
    const bool is_for_both = flag.rules.commands == FlagRules::Commands::train_and_compare;
    EXPECT_TRUE(!is_for_both || compare.find("  " + flag.name + " ") != compare.npos) << flag.name;
  }
  for (const char* flag : {"--save", "--log", "--parallel", "--device-ids"}) {
    EXPECT_THAT(compare, ::testing::Not(HasSubstr(flag)));
  }
}

}  // namespace
}  // namespace lockstep::tools
