#include "tools/report/row_file.h"

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
#include "engine/nn/state_dict.h"
#include "tools/cli/training_flag_table.h"
#include "tools/report/json_integer.h"
#include "tools/training/placement.h"

namespace lockstep::tools {
namespace {

using FlagValue = nlohmann::json;

template <typename T>
FlagValue value_json(const T& value) {
  return value;
}

template <typename T>
FlagValue value_json(const std::optional<T>& value) {
  return value ? FlagValue(*value) : FlagValue();
}

FlagValue value_json(const std::string& text) {
  return text.empty() ? FlagValue() : FlagValue(text);
}

FlagValue said_json(const TrainingFlag& flag, const TrainingFlags& flags) {
  return std::visit([&](auto member) { return value_json(flags.*member); }, flag.member);
}

FlagValue resolved_json(const TrainingFlag& flag, const TrainingFlags& flags,
                        const TrainingTask& task) {
  return flag.rules.resolve ? flag.rules.resolve(flags, task) : said_json(flag, flags);
}

template <typename T>
void read_value(const FlagValue& value, T& found) {
  if constexpr (std::integral<T> && !std::is_same_v<T, bool>) {
    found = integer<T>(value);
  } else {
    found = value.get<T>();
  }
}

// Nothing is said of a text by null, unless it has a default.
void read_value(const FlagValue& value, std::string& text) {
  if (!value.is_null() || !text.empty()) text = value.get<std::string>();
}

template <typename T>
void read_value(const FlagValue& value, std::optional<T>& number) {
  number.reset();
  if (!value.is_null()) read_value(value, number.emplace());
}

void read_flag(const TrainingFlag& flag, const FlagValue& value, TrainingFlags& flags) {
  const std::vector<std::string>& words = flag.rules.one_of;
  if (!words.empty() && !value.is_null() &&
      std::ranges::count(words, value.get<std::string>()) == 0) {
    throw std::range_error("none of its values");
  }
  std::visit([&](auto member) { read_value(value, flags.*member); }, flag.member);
}

constexpr std::string_view kFirstWeights = ".first_weights.safetensors";

nlohmann::json breakdown_json(const trace::StepBreakdown& breakdown) {
  nlohmann::json json{{"sequence", breakdown.sequence}, {"rank", breakdown.rank}};
  for (const auto& [name, part] : trace::kBreakdownParts) json[name] = breakdown.*part;
  for (const auto& [name, total] : trace::kBreakdownTotals) json[name] = breakdown.*total;
  return json;
}

trace::StepBreakdown read_breakdown(const nlohmann::json& json) {
  trace::StepBreakdown breakdown;
  read_integer(json, "sequence", breakdown.sequence);
  read_integer(json, "rank", breakdown.rank);
  for (const auto& [name, part] : trace::kBreakdownParts) breakdown.*part = json.at(name);
  for (const auto& [name, total] : trace::kBreakdownTotals) breakdown.*total = json.at(name);
  return breakdown;
}

// Of each rank, null where it did not communicate.
nlohmann::json overlap_json(const TrainingResult& result) {
  nlohmann::json json = nlohmann::json::array();
  for (const std::optional<double>& fraction : result.comm_overlap) {
    json.push_back(fraction ? nlohmann::json(*fraction) : nullptr);
  }
  return json;
}

void read_statistics(const nlohmann::json& json, TrainingResult& result) {
  read_integer(json, "num_steps", result.step_statistics.num_steps);
  result.step_statistics.median = read_breakdown(json.at("median"));
  result.step_statistics.p90 = read_breakdown(json.at("p90"));
  for (const nlohmann::json& fraction : json.at("comm_overlap")) {
    result.comm_overlap.push_back(fraction.is_null() ? std::nullopt
                                                     : std::optional(fraction.get<double>()));
  }
}

RunRow read_row(const nlohmann::json& json) {
  RunRow row;
  const bool is_cuda = json.at("device") == "cuda";
  const DeviceType type = is_cuda ? DeviceType::cuda : DeviceType::cpu;
  row.placement.mode = Mode::ddp;
  for (const nlohmann::json& index : json.at("devices")) {
    row.placement.devices.push_back({type, integer<int>(index)});
  }
  row.placement.num_physical = integer<std::size_t>(json.at("physical_devices"));
  read_integer(json, "threads", row.threads_per_device);
  if (json.at("contended").is_null()) {
    row.contended.reset();
  } else {
    row.contended = json.at("contended").get<bool>();
  }
  TrainingResult& result = row.result;
  result.epoch_seconds = json.at("epoch_seconds").get<std::vector<double>>();
  if (!json.at("breakdown").is_null()) {
    result.breakdown = read_breakdown(json.at("breakdown"));
    read_statistics(json.at("statistics"), result);
  }
  result.busy_fraction = json.at("busy_fraction").get<std::vector<double>>();
  for (const nlohmann::json& bytes : json.at("peak_bytes")) {
    result.peak_bytes.push_back(integer<std::size_t>(bytes));
  }
  read_integer(json, "comm_bytes_per_step", result.comm_bytes_per_step);
  read_integer(json, "num_steps", result.num_steps);
  result.final_loss = json.at("final_loss");
  read_integer(json, "steps_per_loss", result.losses.steps_per_point);
  result.losses.mean = json.at("losses").get<std::vector<double>>();
  result.epoch_accuracy = json.at("epoch_accuracy").get<std::vector<double>>();
  if (!json.at("findings").is_null()) result.findings = read_findings(json.at("findings"));
  return row;
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
    const FlagValue value = resolved_json(flag, flags, task);
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
    } catch (const FlagValue::exception&) {
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
    const FlagValue all = FlagValue::parse(read_text_file(path, "train"));
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

void write_row(const std::string& path, const RunRow& row) {
  const TrainingResult& result = row.result;
  nlohmann::json json{{"device", lockstep::to_string(row.placement.devices[0].type)},
                      {"devices", nlohmann::json::array()},
                      {"physical_devices", num_physical_devices(row.placement)},
                      {"threads", row.threads_per_device},
                      {"contended", nullptr},
                      {"epoch_seconds", result.epoch_seconds},
                      {"breakdown", nullptr},
                      {"busy_fraction", result.busy_fraction},
                      {"peak_bytes", result.peak_bytes},
                      {"comm_bytes_per_step", result.comm_bytes_per_step},
                      {"num_steps", result.num_steps},
                      {"final_loss", result.final_loss},
                      {"steps_per_loss", result.losses.steps_per_point},
                      {"losses", result.losses.mean},
                      {"epoch_accuracy", result.epoch_accuracy},
                      {"findings", nullptr}};
  for (const Device device : row.placement.devices) json["devices"].push_back(device.index);
  if (row.contended) json["contended"] = *row.contended;
  if (result.breakdown) {
    json["breakdown"] = breakdown_json(*result.breakdown);
    json["statistics"] = {{"num_steps", result.step_statistics.num_steps},
                          {"median", breakdown_json(result.step_statistics.median)},
                          {"p90", breakdown_json(result.step_statistics.p90)},
                          {"comm_overlap", overlap_json(result)}};
  }
  if (result.findings) {
    json["findings"] = findings_json(*result.findings);
    nn::save_weights(path + std::string(kFirstWeights),
                     to_state_dict(result.findings->first_weights));
  }
  write_file_atomically(path, json.dump());
}

RunRow read_row(const std::string& path) {
  try {
    RunRow row = read_row(nlohmann::json::parse(read_text_file(path, "compare")));
    if (row.result.findings) {
      row.result.findings->first_weights =
          keep(nn::load_weights(path + std::string(kFirstWeights)));
    }
    return row;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail(ErrorCode::Io, "compare", "'{}' is not a row of the table: {}", path, shown(error.what()));
  }
}

}  // namespace lockstep::tools
