#include "engine/core/json_places.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

namespace lockstep {
namespace {

using Text = std::string_view;

constexpr Text kSpace = " \t\r\n";
constexpr Text kByteOrderMark = "\xEF\xBB\xBF";

std::size_t skip_space(Text text, std::size_t at) {
  return std::min(text.find_first_not_of(kSpace, at), text.size());
}

std::size_t begin_of_json(Text text) {
  return skip_space(text, text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0);
}

// Behind the string that begins at text[at], a quote.
std::size_t end_of_string(Text text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

std::size_t end_of_value(Text text, std::size_t at) {
  std::size_t depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      at = end_of_string(text, at);
    } else if (c == '{' || c == '[') {
      ++depth;
      ++at;
    } else if (c == '}' || c == ']') {
      --depth;
      ++at;
    } else if (c == ',' || c == ':' || kSpace.find(c) != Text::npos) {
      ++at;
    } else {
      at = std::min(text.find_first_of(",:]} \t\r\n", at), text.size());
    }
    if (depth == 0) break;
  }
  return at;
}

struct Child {
  Text name;  // with its quotes and escapes; empty in a list
  std::size_t index = 0;
  std::size_t begin = 0;  // of the value
};

// Of the object or the list that begins at text[at]; of another value nothing.
void for_each_child(Text text, std::size_t at, const std::function<void(const Child&)>& visit) {
  if (at >= text.size() || (text[at] != '{' && text[at] != '[')) return;
  const bool is_object = text[at] == '{';
  at = skip_space(text, at + 1);
  for (Child child; at < text.size() && text[at] != '}' && text[at] != ']'; ++child.index) {
    if (is_object) {
      const std::size_t end = end_of_string(text, at);
      child.name = text.substr(at, end - at);
      at = skip_space(text, skip_space(text, end) + 1);  // behind the colon
    }
    child.begin = at;
    visit(child);
    at = skip_space(text, end_of_value(text, at));
    if (at < text.size() && text[at] == ',') at = skip_space(text, at + 1);
  }
}

std::string read_name(Text quoted) {
  return nlohmann::json::parse(quoted).get<std::string>();
}

// Removes the first step of "rows[3].kind" from it: "rows", "3" or "kind".
Text take_step(Text& place) {
  const std::size_t begin = std::min(place.find_first_not_of(".[]"), place.size());
  const std::size_t end = std::min(place.find_first_of(".[]", begin), place.size());
  const Text step = place.substr(begin, end - begin);
  place.remove_prefix(end);
  return step;
}

// Where the value of a place begins, or the nearest one around it.
std::size_t find_value(Text text, Text place) {
  std::size_t at = begin_of_json(text);
  for (Text step = take_step(place); !step.empty(); step = take_step(place)) {
    const std::string quoted = '"' + std::string(step) + '"';
    std::size_t found = text.size();
    for_each_child(text, at, [&](const Child& child) {
      const bool is_it = child.name.empty()
                             ? std::to_string(child.index) == step
                             : child.name == quoted || (child.name.find('\\') != Text::npos &&
                                                        read_name(child.name) == step);
      if (is_it) found = child.begin;
    });
    if (found == text.size()) break;
    at = found;
  }
  return at;
}

}  // namespace

std::size_t line_of_json(Text text, Text place) {
  const auto before = text.substr(0, find_value(text, place));
  return 1 + static_cast<std::size_t>(std::ranges::count(before, '\n'));
}

std::vector<std::string> names_in_json(Text text, Text place) {
  std::vector<std::string> names;
  std::set<std::string> known;
  for_each_child(text, find_value(text, place), [&](const Child& child) {
    std::string name = read_name(child.name);
    if (known.insert(name).second) names.push_back(std::move(name));
  });
  return names;
}

}  // namespace lockstep
