#include "tools/report/flags_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <variant>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "engine/core/text.h"
#include "tools/cli/training_flag_table.h"
#include "tools/report/json_integer.h"

namespace lockstep::tools {
namespace {

using nlohmann::json;

template <typename T>
json value_json(const T& value) {
  return value;
}

template <typename T>
json value_json(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

json value_json(const std::string& text) {
  return text.empty() ? json() : json(text);
}

json said_json(const TrainingFlag& flag, const TrainingFlags& flags) {
  return std::visit([&](auto member) { return value_json(flags.*member); }, flag.member);
}

json resolved_json(const TrainingFlag& flag, const TrainingFlags& flags, const TrainingTask& task) {
  return flag.rules.resolve ? flag.rules.resolve(flags, task) : said_json(flag, flags);
}

template <typename T>
void read_value(const json& value, T& found) {
  if constexpr (std::integral<T> && !std::is_same_v<T, bool>) {
    found = integer<T>(value);
  } else {
    found = value.get<T>();
  }
}

// Nothing is said of a text by null, unless it has a default.
void read_value(const json& value, std::string& text) {
  if (!value.is_null() || !text.empty()) text = value.get<std::string>();
}

template <typename T>
void read_value(const json& value, std::optional<T>& number) {
  number.reset();
  if (!value.is_null()) read_value(value, number.emplace());
}

void read_flag(const TrainingFlag& flag, const json& value, TrainingFlags& flags) {
  const std::vector<std::string>& words = flag.rules.one_of;
  if (!words.empty() && !value.is_null() &&
      std::ranges::count(words, value.get<std::string>()) == 0) {
    throw std::range_error("none of its values");
  }
  std::visit([&](auto member) { read_value(value, flags.*member); }, flag.member);
}

}  // namespace

nlohmann::ordered_json flags_json(const TrainingFlags& flags, const TrainingTask& task) {
  nlohmann::ordered_json all;
  for (const TrainingFlag& flag : training_flags()) {
    const std::string name = flag.rules.recorded_as.value_or(flag.key());
    if (!name.empty()) all[name] = resolved_json(flag, flags, task);
  }
  return all;
}

std::vector<launch::Setting> common_settings(const TrainingFlags& flags, const TrainingTask& task) {
  std::vector<launch::Setting> settings{{"command", "train"}};
  for (const TrainingFlag& flag : training_flags()) {
    if (flag.rules.ranks == FlagRules::Ranks::each_its_own) continue;
    const json value = resolved_json(flag, flags, task);
    settings.push_back({flag.rules.recorded_as.value_or(flag.key()),
                        value.is_string() ? value.get<std::string>() : value.dump()});
  }
  const data::LabelledRows& train = task.data->train;
  settings.push_back({"rows of the dataset",
                      fmt::format("{} to train and {} to test, of {} values", train.num_rows(),
                                  task.data->test.num_rows(), train.num_features)});
  return settings;
}

void write_flags(const std::string& path, const TrainingFlags& flags) {
  nlohmann::ordered_json all;
  for (const TrainingFlag& flag : training_flags()) {
    all[flag.key()] = said_json(flag, flags);
    try {
      all[flag.key()].dump();
    } catch (const json::exception&) {
      fail(ErrorCode::Usage, flag.name,
           "is not UTF-8, as ranks that are processes need it; use another name, or --ranks "
           "threads");
    }
  }
  write_file_atomically(path, all.dump());
}

TrainingFlags read_flags(const std::string& path) {
  TrainingFlags flags;
  std::string_view name = "JSON";
  try {
    const json all = json::parse(read_text_file(path, "train"));
    for (const TrainingFlag& flag : training_flags()) {
      name = flag.name;
      read_flag(flag, all.at(flag.key()), flags);
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail(ErrorCode::Io, "train", "'{}' holds no training flags: {}: {}", path, name,
         shown(error.what()));
  }
  return flags;
}

}  // namespace lockstep::tools
