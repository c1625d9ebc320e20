#include "tools/flags/help.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <memory>
#include <set>
#include <utility>

#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

constexpr std::size_t kFlagColumns = 26;     // the descriptions of flags begin here
constexpr std::size_t kCommandColumns = 16;  // and those of commands here
constexpr std::size_t kFewestColumns = 40;
constexpr std::size_t kMargin = 2;

std::size_t help_columns() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kTerminalColumns;
  return std::clamp<std::size_t>(size.ws_col, kFewestColumns, kTerminalColumns);
}

// "--plan auto|ring|tree": a list of values that is too long for a line goes on below the first.
std::string indented_head(const std::string& name, const std::string& value) {
  const std::size_t column = kMargin + name.size() + 1;
  const std::size_t width = help_columns() - std::min(column, help_columns() - 1);
  std::string text = std::string(kMargin, ' ') + name + (value.empty() ? "" : " ");
  std::string_view rest = value;
  while (rest.size() > width) {
    const std::size_t bar = rest.rfind('|', width - 1);
    if (bar == std::string_view::npos) break;
    text.append(rest.substr(0, bar + 1)).append("\n").append(std::string(column, ' '));
    rest.remove_prefix(bar + 1);
  }
  return text.append(rest);
}

// The head, and beside it the description, or below it where the head is long.
std::string entry(std::string head, const std::string& description, std::size_t column) {
  const bool is_long = head.size() + kMargin > column;
  head += is_long ? "\n" + std::string(column, ' ') : std::string(column - head.size(), ' ');
  return head + wrap(description, help_columns(), column) + "\n";
}

bool takes_several(const CLI::Option& option) {
  return option.get_expected_max() >= CLI::detail::expected_max_vector_size;
}

// The words that stand for a flag's value: its choices as in auto|cpu|cuda, else a name.
std::string value_text(const CLI::Option& option) {
  if (option.get_expected_max() == 0) return {};  // a flag without a value
  // The type's name and what its checks say: "FILE", "TEXT:auto|cpu|cuda", "INT:INT in [1 - 9]".
  std::string text = option.get_type_name();
  if (takes_several(option)) text.resize(std::min(text.find(':'), text.size()));
  if (text.starts_with("TEXT:")) text.erase(0, 5);
  if (text.starts_with("INT") || text == "UINT") text = "N";
  if (text == "FLOAT") text = "X";
  text.resize(std::min(text.find(":INT in ["), text.size()));
  if (takes_several(option) && option.get_delimiter() == '\0') text += "...";
  return option.get_expected_min() == 0 ? "[" + text + "]" : text;
}

// "-g, --devices". The second spelling of --node-rank as --node_rank is left out.
std::string name_text(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) {
    std::string dashed = name;
    std::ranges::replace(dashed, '_', '-');
    if (dashed == name || std::ranges::count(option.get_lnames(), dashed) == 0) {
      names.push_back("--" + name);
    }
  }
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// The description, and the default where the description does not tell it.
std::string description_text(const CLI::Option& option) {
  std::string text = option.get_description();
  std::string value = option.get_default_str();
  if (value.starts_with('[') && takes_several(option)) value = value.substr(1, value.size() - 2);
  const bool is_told = value.empty() || text.find("(default") != std::string::npos;
  if (option.get_expected_max() != 0 && !is_told) text += fmt::format(" (default: {})", value);
  if (option.get_required()) text += " (required)";
  return text;
}

std::string flag_entry(const CLI::Option& option) {
  return entry(indented_head(name_text(option), value_text(option)), description_text(option),
               kFlagColumns);
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::vector<const CLI::Option*> positionals(const CLI::App& command) {
  return command.get_options([](const CLI::Option* option) {
    return option->get_positional() && !option->get_group().empty();
  });
}

// "usage: lockstep report RUNS... [FLAGS]".
std::string usage(const CLI::App& command, const std::string& words) {
  std::string text = "usage: " + words;
  if (!command.get_subcommands({}).empty()) text += " COMMAND";
  for (const CLI::Option* option : positionals(command)) {
    const std::string name = upper(option->get_name()) + (takes_several(*option) ? "..." : "");
    text += option->get_required() ? " " + name : " [" + name + "]";
  }
  const bool has_flags =
      command.get_options().size() > positionals(command).size() + 1;  // + --help
  return text + (has_flags ? " [FLAGS]\n" : "\n");
}

std::string command_list(const CLI::App& command) {
  std::string text;
  for (const CLI::App* sub : command.get_subcommands({})) {
    text += entry("  " + sub->get_name(), sub->get_description(), kCommandColumns);
  }
  return text.empty() ? text : "\nCommands\n" + text;
}

std::string positional_list(const CLI::App& command) {
  std::string text;
  for (const CLI::Option* option : positionals(command)) {
    text += entry("  " + upper(option->get_name()), option->get_description(), kFlagColumns);
  }
  return text.empty() ? text : "\n" + text;
}

std::string footer(const CLI::App& command) {
  const std::string words = command.get_footer();
  std::string_view rest = words;
  std::string text = rest.empty() ? "" : "\n";
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    text += wrap(rest.substr(0, end), help_columns()) + "\n";
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return text;
}

class HelpFormatter : public CLI::FormatterBase {
 public:
  explicit HelpFormatter(std::vector<FlagGroup> groups) : groups_(std::move(groups)) {}
  std::string make_help(const CLI::App* command, std::string words,
                        CLI::AppFormatMode mode) const override;

 private:
  std::vector<FlagGroup> groups_;
};

std::string HelpFormatter::make_help(const CLI::App* command, std::string words,
                                     CLI::AppFormatMode) const {
  std::string text = wrap(command->get_description(), help_columns()) + "\n";
  text += usage(*command, words) + positional_list(*command);
  std::set<const CLI::Option*> printed{command->get_help_ptr()};
  const auto print_group = [&](const std::string& title,
                               const std::vector<const CLI::Option*>& options) {
    std::string entries;
    for (const CLI::Option* option : options) {
      const bool is_flag = option->nonpositional() && !option->get_group().empty();
      if (is_flag && printed.insert(option).second) entries += flag_entry(*option);
    }
    if (!entries.empty()) text += "\n" + title + "\n" + entries;
  };
  for (const FlagGroup& group : groups_) {
    std::vector<const CLI::Option*> options;
    for (const std::string& name : group.flags) {
      const CLI::Option* const option = command->get_option_no_throw(name);
      if (option != nullptr) options.push_back(option);
    }
    print_group(group.title, options);
  }
  print_group(groups_.empty() ? "Flags" : "Other flags", command->get_options());
  return text + command_list(*command) + footer(*command);
}

}  // namespace

void group_flags(CLI::App& command, std::vector<FlagGroup> groups) {
  command.formatter(std::make_shared<HelpFormatter>(std::move(groups)));
}

}  // namespace lockstep::tools
