#include "engine/core/json_file.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "engine/core/text.h"

namespace lockstep {

namespace {

using Json = nlohmann::json;

bool is_number(const Json& value) {
  return value.is_number() && value.get<double>() >= 0 && value.get<double>() <= 1e30;
}
bool is_positive(const Json& value) {
  return is_number(value) && value.get<double>() > 0;
}
bool is_count(const Json& value) {
  return value.is_number_integer() && value.get<double>() >= 1 && value.get<double>() <= 1e12;
}

// Shows a value in a message; of a list or an object it only says which of the two it is.
std::string describe(const Json* value) {
  if (value == nullptr) return "nothing";
  if (value->is_array()) return "a list";
  return value->is_object() ? "an object" : shown(value->dump());
}

std::size_t line_at(std::string_view text, std::size_t position) {
  return 1 + static_cast<std::size_t>(std::ranges::count(text.substr(0, position), '\n'));
}

// "[json.exception.out_of_range.406] number overflow parsing '1e999'"
std::string overflown_number(const Json::out_of_range& error) {
  const std::string what = error.what();
  const std::size_t quote = what.find('\'');
  return quote == std::string::npos ? what : what.substr(quote + 1, what.rfind('\'') - quote - 1);
}

}  // namespace

JsonFile::JsonFile(std::string_view name, const std::string& text, std::string_view operation)
    : name_(shown(name)), operation_(operation) {
  require(!text.empty(), ErrorCode::Io, operation_, "'{}' is empty", name_);
  try {
    json_ = std::make_unique<Json>(Json::parse(text));
  } catch (const Json::parse_error& error) {
    const std::size_t position = std::min(error.byte, text.size());
    // White space after a cut belongs to the missing part.
    const bool is_cut = text.find_first_not_of(" \t\r\n", position) == std::string::npos &&
                        (text[0] == '{' || text[0] == '[');
    const std::size_t line = line_at(text, position);
    require(!is_cut, ErrorCode::Io, operation_,
            "'{}', line {}: the file is truncated: it ends in the middle of its JSON; make it "
            "again",
            name_, line);
    fail(ErrorCode::Io, operation_, "'{}', line {}: this is not JSON: unexpected '{}'", name_, line,
         shown(text.substr(position == 0 ? 0 : position - 1, 20)));
  } catch (const Json::out_of_range& error) {
    const std::string number = overflown_number(error);
    fail(ErrorCode::Io, operation_, "'{}', line {}: the number {} is too large", name_,
         line_at(text, text.find(number)), shown(number));
  }
}

JsonFile::JsonFile(const std::filesystem::path& path, std::string_view operation)
    : JsonFile(path.string(), read_text_file(path, operation), operation) {}

JsonFile::~JsonFile() = default;

void JsonFile::fail_at(std::string_view place, std::string_view what) const {
  const bool says_place = place.empty() || what.find(place) != std::string_view::npos;
  fail(ErrorCode::Io, operation_, "'{}'{}{}: {}", name_, says_place ? "" : ", ",
       says_place ? "" : shown(place), what);
}

JsonFields::JsonFields(const JsonFile& file, const Json& object, std::string place)
    : file_(&file), object_(&object), place_(std::move(place)) {
  if (object.is_object()) return;
  file.fail_at(place_, fmt::format("expected {} to be an object, found {}",
                                   place_.empty() ? "the file" : place_, describe(&object)));
}

const Json* JsonFields::find(std::string_view name) const {
  const auto found = object_->find(std::string(name));
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

std::string JsonFields::place_of(std::string_view name) const {
  if (name.empty() || place_.empty()) return place_ + std::string(name);
  return fmt::format("{}.{}", place_, name);
}

bool JsonFields::has(const char* name) const {
  return find(name) != nullptr;
}

void JsonFields::refuse(const char* name, std::string_view expected) const {
  fail_at(name, fmt::format("expected {} to be {}, found {}", place_of(name), expected,
                            describe(find(name))));
}

void JsonFields::fail_at(std::string_view name, std::string_view what) const {
  file_->fail_at(place_of(name), what);
}

template <typename IsRight>
const Json& JsonFields::checked(const char* name, IsRight is_right,
                                std::string_view expected) const {
  if (!has(name) || !std::invoke(is_right, *find(name))) refuse(name, expected);
  return *find(name);
}

template <typename T, typename IsRight>
std::vector<T> JsonFields::list_of(const char* name, IsRight is_right,
                                   std::string_view expected) const {
  if (!has(name)) return {};
  const Json& list = *find(name);
  if (!list.is_array() || !std::ranges::all_of(list, is_right)) refuse(name, expected);
  return list.get<std::vector<T>>();
}

JsonFields JsonFields::object(const char* name) const {
  return {*file_, checked(name, &Json::is_object, "an object"), place_of(name)};
}

std::vector<JsonFields> JsonFields::objects(const char* name) const {
  std::vector<JsonFields> all;
  for (const Json& element : checked(name, &Json::is_array, "a list")) {
    all.emplace_back(*file_, element, fmt::format("{}[{}]", place_of(name), all.size()));
  }
  return all;
}

std::vector<std::string> JsonFields::names() const {
  std::vector<std::string> names;
  for (const auto& member : object_->items()) names.push_back(member.key());
  return names;
}

void JsonFields::require_only(const std::vector<std::string>& known) const {
  for (const std::string& name : names()) {
    if (std::ranges::find(known, name) != known.end()) continue;
    fail_at(name, fmt::format("no field here is called '{}'{}; known are {}", shown(name),
                              did_you_mean(name, known), fmt::join(known, ", ")));
  }
}

std::string JsonFields::text(const char* name) const {
  return checked(name, &Json::is_string, "a text").get<std::string>();
}

std::string JsonFields::text_or_empty(const char* name) const {
  return has(name) ? text(name) : std::string();
}

std::vector<std::string> JsonFields::texts(const char* name) const {
  return list_of<std::string>(name, &Json::is_string, "a list of texts");
}

double JsonFields::number(const char* name) const {
  return checked(name, is_number, "a number from 0 to 1e30").get<double>();
}

std::optional<double> JsonFields::optional_number(const char* name) const {
  return has(name) ? std::optional(number(name)) : std::nullopt;
}

std::vector<double> JsonFields::numbers(const char* name) const {
  return list_of<double>(name, is_number, "a list of numbers from 0 to 1e30");
}

double JsonFields::positive(const char* name) const {
  return checked(name, is_positive, "a number above 0, to 1e30").get<double>();
}

std::size_t JsonFields::count(const char* name) const {
  return checked(name, is_count, "a count, 1 or more").get<std::size_t>();
}

std::size_t JsonFields::count_or(const char* name, std::size_t missing) const {
  return has(name) ? count(name) : missing;
}

std::optional<bool> JsonFields::optional_flag(const char* name) const {
  if (!has(name)) return std::nullopt;
  return checked(name, &Json::is_boolean, "true or false").get<bool>();
}

}  // namespace lockstep
