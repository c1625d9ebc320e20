#include "tools/report/json_fields.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/input_file.h"
#include "engine/core/shown_text.h"

namespace lockstep::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMostCounted = 1e12;

bool is_number(const Json& value) {
  return value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= 0;
}

// A value in a message; of a list or an object only that it is one.
std::string describe(const Json& value) {
  return value.is_structured() ? std::string("an ") + value.type_name() : shown(value.dump());
}

}  // namespace

JsonFields::JsonFields(const Json& object, std::string where, std::string file,
                       std::string_view operation)
    : object_(&object), where_(std::move(where)), file_(std::move(file)), operation_(operation) {
  require(object.is_object(), ErrorCode::Io, operation_,
          "'{}': expected {} to be an object, found {}", file_,
          where_.empty() ? "the file" : where_, object.type_name());
}

const Json* JsonFields::find(const char* name) const {
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

std::string JsonFields::place_of(const char* name) const {
  return where_.empty() ? name : where_ + "." + name;
}

bool JsonFields::has(const char* name) const {
  return find(name) != nullptr;
}

void JsonFields::refuse(const char* name, std::string_view expected) const {
  const Json* value = find(name);
  fail(ErrorCode::Io, operation_, "'{}': expected {} to be {}, found {}", file_, place_of(name),
       expected, value == nullptr ? "nothing" : describe(*value));
}

JsonFields JsonFields::object(const char* name) const {
  if (!has(name)) refuse(name, "an object");
  return {*find(name), place_of(name), file_, operation_};
}

std::vector<JsonFields> JsonFields::objects(const char* name) const {
  if (!has(name) || !find(name)->is_array()) refuse(name, "a list");
  std::vector<JsonFields> all;
  for (const Json& element : *find(name)) {
    all.emplace_back(element, place_of(name) + "[" + std::to_string(all.size()) + "]", file_,
                     operation_);
  }
  return all;
}

std::string JsonFields::text(const char* name) const {
  if (!has(name) || !find(name)->is_string()) refuse(name, "a text");
  return find(name)->get<std::string>();
}

std::string JsonFields::text_or_empty(const char* name) const {
  return has(name) ? text(name) : std::string();
}

std::vector<std::string> JsonFields::texts(const char* name) const {
  if (!has(name)) return {};
  const Json& list = *find(name);
  const auto is_text = [](const Json& word) { return word.is_string(); };
  if (!list.is_array() || !std::ranges::all_of(list, is_text)) refuse(name, "a list of texts");
  return list.get<std::vector<std::string>>();
}

double JsonFields::number(const char* name) const {
  if (!has(name) || !is_number(*find(name))) refuse(name, "a number, 0 or more");
  return find(name)->get<double>();
}

std::optional<double> JsonFields::optional_number(const char* name) const {
  return has(name) ? std::optional(number(name)) : std::nullopt;
}

std::vector<double> JsonFields::numbers(const char* name) const {
  if (!has(name)) return {};
  const Json& list = *find(name);
  if (!list.is_array() || !std::ranges::all_of(list, is_number)) {
    refuse(name, "a list of numbers, 0 or more");
  }
  return list.get<std::vector<double>>();
}

std::size_t JsonFields::count(const char* name) const {
  if (!has(name) || !find(name)->is_number_integer() || !is_number(*find(name)) ||
      find(name)->get<double>() < 1 || find(name)->get<double>() > kMostCounted) {
    refuse(name, "a count, 1 or more");
  }
  return find(name)->get<std::size_t>();
}

std::size_t JsonFields::count_or(const char* name, std::size_t missing) const {
  return has(name) ? count(name) : missing;
}

std::optional<bool> JsonFields::optional_flag(const char* name) const {
  if (!has(name)) return std::nullopt;
  if (!find(name)->is_boolean()) refuse(name, "true or false");
  return find(name)->get<bool>();
}

Json parse_json_file(const std::filesystem::path& path, std::string_view operation) {
  const std::string text = read_text_file(path, operation);
  const std::string file = shown(path.string());
  require(!text.empty(), ErrorCode::Io, operation, "'{}' is empty", file);
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    const std::size_t position = std::min(error.byte, text.size());
    const auto begin = text.begin();
    const auto line = 1 + std::count(begin, begin + static_cast<std::ptrdiff_t>(position), '\n');
    // White space behind a cut is part of what was cut.
    const bool is_cut = text.find_first_not_of(" \t\r\n", position) == std::string::npos &&
                        (text[0] == '{' || text[0] == '[');
    require(!is_cut, ErrorCode::Io, operation,
            "'{}' is truncated: it ends in line {}, in the middle of its JSON; make it again", file,
            line);
    fail(ErrorCode::Io, operation, "'{}' is not JSON: line {}: unexpected '{}'", file, line,
         shown(text.substr(position == 0 ? 0 : position - 1, 20)));
  }
}

}  // namespace lockstep::tools
