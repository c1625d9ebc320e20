#include "tools/cli/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdint>

namespace lockstep::tools {
namespace {

// CLI11 alone would take -1 and numbers of more than 64 bits for other numbers.
std::string whole_number(const std::string& text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  if (result.ec == std::errc{} && result.ptr == end) return {};
  return fmt::format("expected a whole number from 0 to 2^64 - 1, found '{}'", text);
}

// CLI11's message, but for a command that is missing or unknown: then which there are.
std::string describe(const CLI::ParseError& error, const CLI::App& program) {
  const CLI::App* parent = &program;
  while (!parent->get_subcommands().empty()) parent = parent->get_subcommands().front();
  const std::vector<const CLI::App*> commands = parent->get_subcommands({});
  if (commands.empty()) return std::string(error.what()) + " (see lockstep --help)";
  std::vector<std::string> names;
  for (const CLI::App* command : commands) names.push_back(command->get_name());
  const std::vector<std::string> unknown = parent->remaining();
  return fmt::format("{}; use one of: {} (see lockstep --help)",
                     unknown.empty() ? "a command is missing"
                                     : fmt::format("unknown command '{}'", unknown.front()),
                     fmt::join(names, ", "));
}

}  // namespace

Flag Flag::one_of(const std::vector<std::string>& words) const {
  option_->check(CLI::IsMember(words));
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

bool Command::was_said(const std::string& flag) const {
  return app_->count(flag) > 0;
}

std::vector<SaidFlag> Command::said_flags() const {
  std::vector<SaidFlag> said;
  for (const CLI::Option* option : app_->get_options()) {
    if (option->count() == 0) continue;
    SaidFlag flag{option->get_name(), std::nullopt};
    if (option->get_items_expected_max() > 0) flag.value = option->results().back();
    said.push_back(std::move(flag));
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
  std::ranges::reverse(words);  // as CLI11 takes them
  try {
    app_->parse(std::move(words));
  } catch (const CLI::Success& help) {
    app_->exit(help);
  } catch (const CLI::ParseError& error) {
    return describe(error, *app_);
  }
  return {};
}

}  // namespace lockstep::tools
