// Which words of a command line belong to Lockstep, and which to the program that it is to start.
#include <algorithm>
#include <array>
#include <string_view>

#include "tools/commands.h"

namespace lockstep::tools {
namespace {

// The commands that start another program, named behind "--"; `run` needs no dashes.
constexpr std::array<std::string_view, 3> kStarters = {"doctor", "learn", "with-devices"};

}  // namespace

std::size_t num_own_words(const CommandLine& command) {
  if (command.size() > 1 && command[1] == "run") return find_program_to_run(command);
  const bool starts_another =
      command.size() > 1 && std::ranges::find(kStarters, command[1]) != kStarters.end();
  if (!starts_another) return command.size();
  return static_cast<std::size_t>(std::ranges::find(command, "--") - command.begin());
}

CommandLine words_behind_dashes(const CommandLine& command) {
  const std::size_t begin = std::min(num_own_words(command) + 1, command.size());
  return {command.begin() + static_cast<std::ptrdiff_t>(begin), command.end()};
}

}  // namespace lockstep::tools
