// The table of the training flags, and what is made of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <type_traits>

#include "tests/support/expect_error.h"
#include "tests/tools/run_lockstep.h"
#include "tools/cli/training_flags.h"
#include "tools/report/row_file.h"

namespace lockstep::tools {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;
using testing::words;

// Not the default, and one that the flag may have.
template <typename Value>
Value other_value(const TrainingFlag& flag, const Value& value) {
  if constexpr (std::is_same_v<Value, std::string>) {
    const std::vector<std::string>& words = flag.rules.one_of;
    return words.empty() ? value + " \"ü\"\n" : words.back();
  } else if constexpr (std::is_same_v<Value, bool>) {
    return !value;
  } else if constexpr (std::is_same_v<Value, std::uint64_t>) {
    return ~value;
  } else if constexpr (requires { value.has_value(); }) {
    return typename Value::value_type(7);
  } else {
    return value + Value(1) / Value(3) + Value(1);
  }
}

TEST(TrainingFlags, ComeBackFromAFileAsTheyWere) {
  const TempFolder folder;
  TrainingFlags flags;
  for (const TrainingFlag& flag : training_flags()) {
    std::visit([&](auto member) { flags.*member = other_value(flag, flags.*member); }, flag.member);
  }
  const TrainingFlags defaults;
  for (const TrainingFlags& written : {flags, defaults}) {
    write_flags(folder / "flags.json", written);
    const TrainingFlags found = read_flags(folder / "flags.json");
    for (const TrainingFlag& flag : training_flags()) {
      const auto is_same = [&](auto member) { return found.*member == written.*member; };
      EXPECT_TRUE(std::visit(is_same, flag.member)) << flag.name;
    }
  }
  for (const TrainingFlag& flag : training_flags()) {
    const auto is_default = [&](auto member) { return flags.*member == defaults.*member; };
    EXPECT_FALSE(std::visit(is_default, flag.member)) << flag.name;
  }
}

TEST(TrainingFlags, ANameThatJsonDoesNotHoldIsAnErrorThatNamesTheFlag) {
  const TempFolder folder;
  TrainingFlags flags;
  flags.init_path = "caf\xe9";
  testing::expect_error(ErrorCode::Usage, "[--init] is not UTF-8",
                        [&] { write_flags(folder / "flags.json", flags); });
}

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
