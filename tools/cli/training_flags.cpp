#include "tools/cli/training_flags.h"

#include <algorithm>
#include <type_traits>

#include "tools/cli/command.h"
#include "tools/cli/training_flag_table.h"

namespace lockstep::tools {
namespace {

template <typename Value>
Flag add_value(Command& command, const TrainingFlag& flag, Value& value) {
  if constexpr (std::is_same_v<Value, bool>) {
    return command.add_flag(flag.name, value, flag.help);
  } else {
    return command.add_option(flag.name, value, flag.help);
  }
}

// Of RankFlags, which have few of the members, only these.
template <typename Flags>
void add(Command& command, const TrainingFlag& flag, Flags& flags) {
  const auto add_member = [&](auto member) {
    if constexpr (requires { flags.*member; }) {
      const Flag added = add_value(command, flag, flags.*member);
      const FlagRules& rules = flag.rules;
      if (!rules.one_of.empty()) added.one_of(rules.one_of);
      if (!rules.excludes.empty()) added.excludes(command.find_flag(rules.excludes));
      if (!rules.needs.empty()) added.needs(command.find_flag(rules.needs));
    }
  };
  std::visit(add_member, flag.member);
}

}  // namespace

void add_training_flags(Command& command, TrainingFlags& flags) {
  for (const TrainingFlag& flag : training_flags()) add(command, flag, flags);
}

void add_compare_flags(Command& command, TrainingFlags& flags) {
  for (const TrainingFlag& flag : training_flags()) {
    if (flag.rules.commands != FlagRules::Commands::train) add(command, flag, flags);
  }
}

void add_training_flag(Command& command, TrainingFlags& flags, std::string_view name) {
  add(command, *std::ranges::find(training_flags(), name, &TrainingFlag::name), flags);
}

void add_rank_flags(Command& command, RankFlags& flags) {
  for (const TrainingFlag& flag : training_flags()) add(command, flag, flags);
}

}  // namespace lockstep::tools
