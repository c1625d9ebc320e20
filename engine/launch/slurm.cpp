#include "engine/launch/slurm.h"

#include <fmt/format.h>

#include <charconv>

#include "engine/core/error.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kMaxHosts = 65536;

class NodeListParser {
 public:
  NodeListParser(std::string_view variable, std::string_view text)
      : variable_(variable), text_(text) {}

  std::vector<std::string> parse() {
    std::vector<std::string> hosts;
    do {
      for (std::string& host : parse_name()) hosts.push_back(std::move(host));
      require(hosts.size() <= kMaxHosts, ErrorCode::Usage, variable_, "names more than {} hosts",
              kMaxHosts);
    } while (take(','));
    if (!rest().empty()) complain();
    return hosts;
  }

 private:
  std::string_view rest() const { return text_.substr(position_); }
  bool take(char c) {
    if (!rest().starts_with(c)) return false;
    ++position_;
    return true;
  }
  [[noreturn]] void complain() const {
    fail(ErrorCode::Usage, variable_,
         "expected hosts as in node[003-007,010], found '{}' (stopped at '{}')", text_, rest());
  }

  // Letters and brackets in turn, as in "rack[1-2]node[1-4]".
  std::vector<std::string> parse_name() {
    std::vector<std::string> names{""};
    const std::size_t begin = position_;
    while (!rest().empty() && !rest().starts_with(',')) {
      if (take('[')) {
        append_each(names, parse_ranges());
        continue;
      }
      const std::size_t end = std::min(rest().find_first_of(",[]"), rest().size());
      if (end == 0) complain();
      for (std::string& name : names) name += rest().substr(0, end);
      position_ += end;
    }
    if (position_ == begin) complain();
    return names;
  }

  // "003-007,010]": what stands between brackets, and the closing one.
  std::vector<std::string> parse_ranges() {
    std::vector<std::string> numbers;
    do {
      const std::string_view first = parse_digits();
      const std::string_view last = take('-') ? parse_digits() : first;
      const std::size_t begin = to_number(first);
      const std::size_t end = to_number(last);
      if (end < begin || end - begin >= kMaxHosts) complain();
      for (std::size_t n = begin; n <= end; ++n) {
        numbers.push_back(fmt::format("{:0{}}", n, first.size()));
      }
    } while (take(','));
    if (!take(']')) complain();
    return numbers;
  }

  std::string_view parse_digits() {
    const std::size_t end = std::min(rest().find_first_not_of("0123456789"), rest().size());
    if (end == 0 || end > 9) complain();
    const std::string_view digits = rest().substr(0, end);
    position_ += end;
    return digits;
  }
  static std::size_t to_number(std::string_view digits) {
    std::size_t number = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return number;
  }

  void append_each(std::vector<std::string>& names, const std::vector<std::string>& numbers) const {
    require(names.size() * numbers.size() <= kMaxHosts, ErrorCode::Usage, variable_,
            "names more than {} hosts", kMaxHosts);
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const std::string& number : numbers) longer.push_back(name + number);
    }
    names = std::move(longer);
  }

  std::string_view variable_;
  std::string_view text_;
  std::size_t position_ = 0;
};

}  // namespace

std::vector<std::string> parse_node_list(std::string_view variable, std::string_view text) {
  return NodeListParser(variable, text).parse();
}

std::optional<int> tasks_on_node(std::string_view variable, std::string_view text, int node) {
  int nodes_before = 0;
  const char* position = text.data();
  const char* const end = position + text.size();
  const auto number = [&] {
    int value = 0;
    const auto [rest, problem] = std::from_chars(position, end, value);
    require(problem == std::errc{} && value > 0, ErrorCode::Usage, variable,
            "expected tasks per node as in 2(x3),1, found '{}'", text);
    position = rest;
    return value;
  };
  const auto take = [&](std::string_view word) {
    const bool is_next =
        std::string_view(position, static_cast<std::size_t>(end - position)).starts_with(word);
    if (is_next) position += word.size();
    return is_next;
  };
  do {
    const int tasks = number();
    int times = 1;
    if (take("(x")) {
      times = number();
      require(take(")"), ErrorCode::Usage, variable,
              "expected tasks per node as in 2(x3),1, found '{}'", text);
    }
    if (node - nodes_before < times) return tasks;
    nodes_before += times;
  } while (take(","));
  require(position == end, ErrorCode::Usage, variable,
          "expected tasks per node as in 2(x3),1, found '{}'", text);
  return std::nullopt;
}

}  // namespace lockstep::launch
