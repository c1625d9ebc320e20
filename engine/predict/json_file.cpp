#include "engine/predict/json_file.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/shown_text.h"

namespace lockstep::predict {
namespace {

constexpr std::size_t kMaxDepth = 8;

// A list or an object that has begun and not ended.
struct Level {
  std::string pointer;
  bool is_object = false;
  std::size_t index = 0;
  std::string key;

  std::string child() const { return pointer + "/" + (is_object ? key : std::to_string(index)); }
};

// The string that begins at text[i], a quote; i moves to its closing quote.
std::string read_string(std::string_view text, std::size_t& i) {
  std::string value;
  for (++i; i < text.size() && text[i] != '"'; ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) ++i;
    value += text[i];
  }
  return value;
}

}  // namespace

std::map<std::string, std::size_t> lines_of_values(std::string_view text) {
  std::map<std::string, std::size_t> lines;
  std::vector<Level> levels;
  std::size_t line = 1;
  bool wants_key = false;
  const auto begin_value = [&] {
    if (levels.size() > kMaxDepth) return;
    lines.emplace(levels.empty() ? "" : levels.back().child(), line);
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == ':') continue;
    if (c == ',') {
      ++levels.back().index;
      wants_key = levels.back().is_object;
    } else if (c == '}' || c == ']') {
      levels.pop_back();
      wants_key = false;
    } else if (c == '"' && wants_key) {
      levels.back().key = read_string(text, i);
      wants_key = false;
    } else {
      begin_value();
      if (c == '{' || c == '[') {
        // Deeper down pointers are not needed, and would grow with the square of the depth.
        const bool is_deep = levels.size() > kMaxDepth;
        levels.push_back({levels.empty() || is_deep ? "" : levels.back().child(), c == '{', 0, ""});
        wants_key = c == '{';
      } else if (c == '"') {
        read_string(text, i);
      } else {
        while (i + 1 < text.size() &&
               std::string_view(",]} \n\t\r").find(text[i + 1]) == std::string_view::npos) {
          ++i;
        }
      }
    }
  }
  return lines;
}

JsonFile::JsonFile(std::string name, std::string text, std::string_view operation)
    : name_(std::move(name)), operation_(operation) {
  try {
    root_ = std::make_unique<nlohmann::json>(nlohmann::json::parse(text));
  } catch (const nlohmann::json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 3, column 7: ..."
    const std::string what = error.what();
    const std::size_t place = what.find("line ");
    fail(ErrorCode::Io, operation_, "'{}', {}; is the file truncated?", name_,
         shown(place == std::string::npos ? what : what.substr(place)));
  }
  require(root_->is_object(), ErrorCode::Io, operation_,
          "'{}', line 1: expected a JSON object, found another value", name_);
  lines_ = lines_of_values(text);
}

JsonFile::~JsonFile() = default;

bool JsonFile::has(const std::string& pointer) const {
  const nlohmann::json::json_pointer place(pointer);
  return root_->contains(place) && !root_->at(place).is_null();
}

const nlohmann::json& JsonFile::at(const std::string& pointer) const {
  const nlohmann::json::json_pointer place(pointer);
  if (!root_->contains(place)) fail_at(pointer, fmt::format("'{}' is missing", pointer));
  return root_->at(place);
}

std::string JsonFile::text(const std::string& pointer) const {
  const nlohmann::json& value = at(pointer);
  if (!value.is_string()) fail_at(pointer, fmt::format("'{}' must be a text", pointer));
  return value.get<std::string>();
}

double JsonFile::number(const std::string& pointer) const {
  const nlohmann::json& value = at(pointer);
  const bool is_good = value.is_number() && std::isfinite(value.get<double>()) && value >= 0;
  if (!is_good) {
    fail_at(pointer, fmt::format("'{}' must be a number of at least 0, found {}", pointer,
                                 value.is_structured() ? "a list or an object"
                                                       : shown(value.dump(-1, ' ', true))));
  }
  return value.get<double>();
}

double JsonFile::positive(const std::string& pointer) const {
  const double value = number(pointer);
  if (value <= 0) fail_at(pointer, fmt::format("'{}' must be above 0, found 0", pointer));
  return value;
}

std::size_t JsonFile::count(const std::string& pointer) const {
  const double value = number(pointer);
  if (value != std::floor(value) || value > 1e15) {
    fail_at(pointer, fmt::format("'{}' must be a whole number, found {}", pointer, value));
  }
  return static_cast<std::size_t>(value);
}

std::size_t JsonFile::num_elements(const std::string& pointer) const {
  const nlohmann::json& value = at(pointer);
  if (!value.is_array()) fail_at(pointer, fmt::format("'{}' must be a list", pointer));
  return value.size();
}

void JsonFile::fail_at(const std::string& pointer, const std::string& what) const {
  std::string place = pointer;
  while (!lines_.contains(place) && !place.empty()) place.resize(place.rfind('/'));
  const auto line = lines_.find(place);
  fail(ErrorCode::Io, operation_, "'{}', line {}: {}", name_,
       line == lines_.end() ? 1 : line->second, what);
}

}  // namespace lockstep::predict
