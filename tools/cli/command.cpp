#include "tools/cli/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

#include "engine/core/text.h"

namespace lockstep::tools {
namespace {

// CLI11 alone would misread -1 and numbers of more than 64 bits.
std::string whole_number(const std::string& text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  if (result.ec == std::errc{} && result.ptr == end) return {};
  return fmt::format("expected a whole number from 0 to 2^64 - 1, found '{}'", text);
}

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
  return problem + " (see lockstep --help)";
}

}  // namespace

Flag Flag::one_of(const std::vector<std::string>& words) const {
  const auto check = [words](const std::string& word) -> std::string {
    if (std::ranges::count(words, word) > 0) return {};
    return fmt::format("'{}' is none of {}{}", word, fmt::join(words, ", "),
                       did_you_mean(word, words));
  };
  option_->check(check, fmt::format("{{{}}}", fmt::join(words, ",")));
  return *this;
}

Flag Flag::in_range(int first, int last) const {
  option_->check(CLI::Range(first, last));
  return *this;
}

Flag Flag::excludes(Flag other) const {
  option_->excludes(other.option_);
  return *this;
}

Flag Flag::needs(Flag other) const {
  option_->needs(other.option_);
  return *this;
}

Flag Flag::separated_by(char delimiter) const {
  option_->delimiter(delimiter);
  return *this;
}

Flag Flag::value_may_miss() const {
  option_->expected(0, 1)->default_str("");  // else it would stand for the missing value
  return *this;
}

Flag Flag::required() const {
  option_->required();
  return *this;
}

Flag Flag::hidden() const {
  option_->group("");
  return *this;
}

Command Command::add_command(const std::string& name, const std::string& description) {
  return Command(app_->add_subcommand(name, description));
}

void Command::require_command() {
  app_->require_subcommand(1);
}

template <typename T>
Flag Command::add_option(const std::string& names, T& value, const std::string& help) {
  CLI::Option* option = app_->add_option(names, value, help);
  if constexpr (requires { value.empty(); }) {
    if (!value.empty()) option->capture_default_str();
  } else if constexpr (!requires { value.has_value(); }) {
    option->capture_default_str();
  }
  if constexpr (std::is_same_v<T, std::uint64_t>) option->check(whole_number);
  return Flag(option);
}

template Flag Command::add_option(const std::string&, std::string&, const std::string&);
template Flag Command::add_option(const std::string&, std::vector<std::string>&,
                                  const std::string&);
template Flag Command::add_option(const std::string&, int&, const std::string&);
template Flag Command::add_option(const std::string&, double&, const std::string&);
template Flag Command::add_option(const std::string&, std::uint64_t&, const std::string&);
template Flag Command::add_option(const std::string&, std::optional<int>&, const std::string&);
template Flag Command::add_option(const std::string&, std::optional<double>&, const std::string&);

Flag Command::add_flag(const std::string& names, bool& value, const std::string& help) {
  return Flag(app_->add_flag(names, value, help));
}

void Command::footer(const std::string& text) {
  app_->footer(text);
}

void Command::on_run(std::function<void()> action) {
  app_->callback(std::move(action));
}

Flag Command::find_flag(const std::string& name) const {
  return Flag(app_->get_option(name));
}

bool Command::was_said(const std::string& flag) const {
  return app_->count(flag) > 0;
}

std::vector<std::string> Command::said_flags() const {
  std::vector<std::string> said;
  for (const CLI::Option* option : app_->get_options()) {
    if (option->count() > 0) said.push_back(option->get_name());
  }
  return said;
}

Program::Program(const std::string& name, const std::string& version,
                 const std::string& description)
    : Command(nullptr), owned_app_(std::make_unique<CLI::App>(description, name)) {
  app_ = owned_app_.get();
  app_->set_version_flag("--version", name + " " + version);
  app_->require_subcommand(1);
}

Program::~Program() = default;

std::string Program::parse(std::vector<std::string> words) {
  std::ranges::reverse(words);  // CLI11 takes them in reverse
  try {
    app_->parse(std::move(words));
  } catch (const CLI::Success& help) {
    // `lockstep tarin --help` is a mistake, so the help of the whole program is no answer.
    if (!app_->remaining(true).empty()) return describe("", *app_);
    app_->exit(help);
  } catch (const CLI::ParseError& error) {
    return describe(error.what(), *app_);
  }
  return {};
}

}  // namespace lockstep::tools
