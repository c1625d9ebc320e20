#include "tools/flags/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "engine/core/text.h"

namespace lockstep::tools {
namespace {

// The command that the words name, as far as they go.
const CLI::App& named_command(const CLI::App& program) {
  const CLI::App* command = &program;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  return *command;
}

std::vector<std::string> names_of_commands(const CLI::App& parent) {
  std::vector<std::string> names;
  for (const CLI::App* command : parent.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> names_of_flags(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// "unknown flag '--devces'; did you mean '--devices'?", for the first word that no command takes.
std::string describe_unknown(const std::vector<std::string>& unknown, const CLI::App& command) {
  const std::string& first = unknown.front();
  const std::vector<std::string> commands = names_of_commands(command);
  if (first.starts_with("-")) {
    const std::string flag = first.substr(0, first.find('='));
    return fmt::format("unknown flag '{}'{}", flag, did_you_mean(flag, names_of_flags(command)));
  }
  if (!commands.empty()) {
    return fmt::format("unknown command '{}'; use one of: {}{}", first, fmt::join(commands, ", "),
                       did_you_mean(first, commands));
  }
  return fmt::format("unexpected argument{} '{}'", unknown.size() > 1 ? "s" : "",
                     fmt::join(unknown, " "));
}

// Says what is wrong with the words: CLI11's problem, unless a command is missing or a word is
// unknown.
std::string describe(std::string problem, const CLI::App& program) {
  const CLI::App& command = named_command(program);
  const std::vector<std::string> unknown = program.remaining(true);
  const std::vector<std::string> commands = names_of_commands(command);
  if (!unknown.empty()) {
    problem = describe_unknown(unknown, command);
  } else if (!commands.empty()) {
    problem = fmt::format("a command is missing; use one of: {}", fmt::join(commands, ", "));
  }
  std::string words = command.get_name();
  for (const CLI::App* above = command.get_parent(); above; above = above->get_parent()) {
    words = above->get_name() + " " + words;
  }
  return fmt::format("{} (see {} --help)", problem, words);
}

// CLI11's "Could not convert: --momentum = abc" and "run is required", in our words.
std::string in_our_words(std::string problem) {
  constexpr std::string_view kConversion = "Could not convert: ";
  constexpr std::string_view kRequired = " is required";
  const std::size_t equals = problem.find(" = ");
  if (problem.starts_with(kConversion) && equals != std::string::npos) {
    const std::string word = problem.substr(equals + 3);
    const bool is_large = word.find_first_not_of("0123456789") == std::string::npos;
    return fmt::format("{}: {}, found '{}'",
                       problem.substr(kConversion.size(), equals - kConversion.size()),
                       is_large ? "expected a smaller number" : "expected a number", word);
  }
  if (problem.ends_with(kRequired)) {
    problem.resize(problem.size() - kRequired.size());
    return problem + " is missing";
  }
  return problem;
}

}  // namespace

CLI::Validator one_of(const std::vector<std::string>& words) {
  const auto check = [words](const std::string& word) -> std::string {
    if (std::ranges::count(words, word) > 0) return {};
    return fmt::format("'{}' is not one of {}{}", word, fmt::join(words, ", "),
                       did_you_mean(word, words));
  };
  std::vector<std::string> shown = words;
  std::erase(shown, "");
  return {check, fmt::format("{}", fmt::join(shown, "|"))};
}

CLI::Validator whole_number() {
  const auto check = [](const std::string& text) -> std::string {
    std::uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, number);
    if (result.ec == std::errc{} && result.ptr == end) return {};
    return fmt::format("expected a whole number from 0 to 2^64 - 1, found '{}'", text);
  };
  return {check, ""};
}

std::vector<std::string> given_flags(const CLI::App& command) {
  std::vector<std::string> given;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() > 0) given.push_back(option->get_name());
  }
  return given;
}

std::string parse(CLI::App& program, std::vector<std::string> words) {
  std::ranges::reverse(words);  // CLI11 takes them in reverse
  try {
    program.parse(std::move(words));
  } catch (const CLI::Success& help) {
    // `lockstep tarin --help` is a mistake, so the help of the whole program is no answer.
    if (!program.remaining(true).empty()) return describe("", program);
    program.exit(help);
  } catch (const CLI::ParseError& error) {
    return describe(in_our_words(error.what()), program);
  }
  return {};
}

}  // namespace lockstep::tools
