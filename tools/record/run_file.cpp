#include "tools/record/run_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <type_traits>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "engine/core/text.h"
#include "engine/nn/state_dict.h"
#include "tools/record/host_info.h"
#include "tools/run/interruption.h"
#include "tools/run/step_statistics.h"

// JSON's null stands for an absent value.
template <typename T>
struct nlohmann::adl_serializer<std::optional<T>> {
  static void to_json(json& json, const std::optional<T>& value) {
    json = value ? nlohmann::json(*value) : nlohmann::json();
  }
  static void from_json(const json& json, std::optional<T>& value) {
    value.reset();
    if (!json.is_null()) value = json.get<T>();
  }
};

namespace lockstep::trace {

// The figures of a step, not its number.
void to_json(nlohmann::json& json, const StepBreakdown& step) {
  for (const auto& [name, seconds] : kBreakdownParts) json[name] = step.*seconds;
  for (const auto& [name, seconds] : kBreakdownTotals) json[name] = step.*seconds;
}

void from_json(const nlohmann::json& json, StepBreakdown& step) {
  for (const auto& [name, seconds] : kBreakdownParts) json.at(name).get_to(step.*seconds);
  for (const auto& [name, seconds] : kBreakdownTotals) json.at(name).get_to(step.*seconds);
}

}  // namespace lockstep::trace

namespace lockstep::tools {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StepStatistics, num_steps, median_seconds, p90_seconds)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ThinnedLosses, steps_per_point, mean)
// The first weights are left out: they have a file of their own.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunFindings, num_first_steps, first_movement, movement,
                                   last_state, losses, test_result, gradient_checks, gradient_limit,
                                   failure, exploded)

namespace {

using Json = nlohmann::ordered_json;

// --- what a reader accepts in a field ---

// Anything: no reader looks at the field.
void unread(const JsonFields&, const char*) {}

auto count_or(std::size_t missing) {
  return [missing](const JsonFields& row, const char* name) { return row.count_or(name, missing); };
}

std::string read_text(const JsonFields& row, const char* name) {
  return shown(row.text(name));
}

std::string read_text_or_empty(const JsonFields& row, const char* name) {
  return shown(row.text_or_empty(name));
}

std::string read_kind(const JsonFields& row, const char* name) {
  const std::string kind = row.has(name) ? row.text(name) : "measured";
  if (kind != "measured" && kind != "acted" && kind != "predicted") {
    row.refuse(name, "measured, acted or predicted");
  }
  return kind;
}

std::size_t read_bytes(const JsonFields& row, const char* name) {
  constexpr double kMostBytes = 1e18;
  return static_cast<std::size_t>(std::min(row.optional_number(name).value_or(0), kMostBytes));
}

std::vector<double> read_fractions(const JsonFields& row, const char* name) {
  std::vector<double> fractions = row.numbers(name);
  if (std::ranges::any_of(fractions, [](double share) { return share > 1; })) {
    row.refuse(name, "fractions, at most 1");
  }
  return fractions;
}

void check_verdict(const JsonFields& row, const char* name) {
  if (row.has(name)) row.object(name).optional_flag("equal");
}

// A loss may be any number, or null, because a run may explode.
void check_loss(const JsonFields& row, const char* name) {
  if (row.has(name) && !row.find(name)->is_number()) row.refuse(name, "a number");
}

void check_losses(const JsonFields& fields, const char* name) {
  const auto is_loss = [](const nlohmann::json& value) {
    return value.is_number() || value.is_null();
  };
  const nlohmann::json* const list = fields.find(name);
  if (list && !(list->is_array() && std::ranges::all_of(*list, is_loss))) {
    fields.refuse(name, "a list of numbers");
  }
}

void check_curve(const JsonFields& row, const char* name) {
  if (!row.has(name)) return;
  const JsonFields curve = row.object(name);
  curve.count("steps_per_point");
  check_losses(curve, "mean");
}

// --- the fields of a row ---

Json verdict_json(const std::optional<Verdict>& verdict) {
  if (!verdict) return nullptr;
  Json json{{"equal", verdict->equal()},
            {"first_steps_max_abs_diff", verdict->first_steps_max_abs_diff},
            {"first_steps_tolerance", verdict->first_steps_tolerance},
            {"gradient_checks", Json::array()}};
  if (!verdict->incomparable.empty()) json["weights_not_compared"] = verdict->incomparable;
  if (verdict->repeated_drift) json["drift_in_other_precision"] = *verdict->repeated_drift;
  for (const GradientCheck& check : verdict->gradient_checks) {
    json["gradient_checks"].push_back(
        {{"step", check.step}, {"max_relative_error", check.max_relative_error}});
    if (check.num_amplified > 0) {
      json["gradient_checks"].back()["amplified_tensors"] = check.num_amplified;
    }
  }
  return json;
}

Json bubble_json(const RunRow& row) {
  return {{"measured", nlohmann::json(row.result.bubble)},
          {"formula", nlohmann::json(row.bubble_formula)}};
}

Json parts_json(const trace::StepBreakdown& step) {
  Json json;
  for (const auto& [name, seconds] : trace::kBreakdownParts) json[name] = step.*seconds;
  return json;
}

// The table of a row's fields, in the file's order: visit(name, value, read, has_place). A value
// that is no member of the row is computed from others, and only written. `read` takes the field
// from a file that a user gave; if it has no result that fits the value, the page's script reads
// the field, and it is only checked. A field without a place is left out.
template <typename Row, typename Visit>
void visit_fields(Row& row, const Visit& visit) {
  const auto number = &JsonFields::optional_number;
  const auto numbers = &JsonFields::numbers;
  auto& result = row.result;
  const trace::StepBreakdown step = result.breakdown.value_or(trace::StepBreakdown());
  const bool is_recorded = result.breakdown.has_value();
  const bool has_validation = !result.epoch_validation_loss.empty();
  const std::vector<double>& accuracies = result.epoch_accuracy;
  visit("mode", row.mode, read_text);
  visit("devices", row.devices, &JsonFields::count);
  visit("physical_devices", row.physical_devices, count_or(row.devices));
  visit("virtual", row.physical_devices < row.devices, unread);
  visit("kind", row.kind, read_kind);
  visit("median_epoch_seconds", row.median_epoch_seconds(), number);
  visit("step_seconds", row.step_seconds, &JsonFields::positive);
  visit("samples_per_second", row.samples_per_second(), unread);
  visit("speedup", row.speedup, number);
  visit("ideal_speedup", row.ideal_speedup, number);
  visit("efficiency", row.efficiency, number);
  visit("max_abs_weight_diff", row.speedup ? Json(row.max_abs_weight_diff) : Json(), unread);
  visit("verdict", verdict_json(row.verdict), check_verdict);
  visit("threads_per_device", row.threads_per_device, count_or(1));
  visit("batch", row.batch, &JsonFields::count);
  visit("contended", row.contended, &JsonFields::optional_flag);
  visit("iterations", result.num_steps, count_or(0));
  visit("epoch_seconds", result.epoch_seconds, numbers);
  visit("unfinished_epoch_seconds", result.unfinished_epoch_seconds, unread,
        result.unfinished_epoch_seconds.has_value());
  visit("busy_fraction", result.busy_fraction, numbers);
  visit("step_statistics", result.step_statistics, unread, is_recorded);
  visit("comm_overlap_fraction", result.comm_overlap, unread, is_recorded);
  visit("comm_bytes_per_device_per_step", result.comm_bytes_per_step, read_bytes);
  visit("peak_bytes", result.peak_bytes, numbers);
  visit("peak_bytes_beside_steps", result.peak_bytes_beside_steps, numbers,
        !result.peak_bytes_beside_steps.empty());
  visit("final_loss", result.final_loss, check_loss);
  visit("losses", result.losses, check_curve);
  visit("epoch_accuracy", result.epoch_accuracy, read_fractions, !has_validation);
  visit("epoch_validation_loss", result.epoch_validation_loss, check_losses, has_validation);
  visit("slow_motion", result.simulated.value_or(Simulation()).factor, number,
        result.simulated.has_value());
  visit("topology", row.topology, read_text_or_empty, !row.topology.empty());
  visit("what_if", row.what_if, read_text_or_empty, !row.what_if.empty());
  visit("measured_again", row.measured_again, unread, row.measured_again);
  visit("bubble", bubble_json(row), unread, row.bubble_formula.has_value());
  visit("breakdown_seconds", parts_json(step), unread, is_recorded);
  visit("breakdown_of", Json{{"step", step.sequence}, {"rank", step.rank}}, unread, is_recorded);
  visit("overlapped_comm_seconds", double{step.overlapped_comm}, number, is_recorded);
  visit("validation_loss", has_validation ? Json(result.epoch_validation_loss.back()) : Json(),
        unread, has_validation);
  // A run that was interrupted in its first epoch has none; one without test rows has 0.
  visit("test_accuracy",
        result.stopped_by != 0 && accuracies.empty() ? Json() : Json(result.test_accuracy()),
        number, !has_validation);
}

// A value's own JSON sorts its members.
Json ordered(const Json& value) {
  return value;
}
template <typename T>
Json ordered(const T& value) {
  return nlohmann::json(value);
}

Json row_json(const RunRow& row) {
  Json json;
  visit_fields(row, [&](const char* name, const auto& value, const auto&, auto... has_place) {
    if ((has_place && ...)) json[name] = ordered(value);
  });
  return json;
}

std::optional<trace::StepBreakdown> read_breakdown(const JsonFields& row, double step_seconds) {
  if (!row.has("breakdown_seconds")) return std::nullopt;
  const JsonFields parts = row.object("breakdown_seconds");
  trace::StepBreakdown breakdown;
  for (const auto& [name, seconds] : trace::kBreakdownParts) {
    breakdown.*seconds = parts.number(name.data());
  }
  breakdown.step = step_seconds;
  breakdown.overlapped_comm = row.optional_number("overlapped_comm_seconds").value_or(0);
  breakdown.comm = breakdown.exposed_comm + breakdown.overlapped_comm;
  return breakdown;
}

// The hardware that the row's devices can use at once: a core per thread, at most num_cores; or
// GPUs.
double usable_units(const RunRow& row, std::size_t num_cores) {
  const std::size_t num_threads = row.devices * row.threads_per_device;
  return static_cast<double>(row.is_on_cores ? std::clamp<std::size_t>(num_threads, 1, num_cores)
                                             : row.physical_devices);
}

std::string first_weights_of(const std::string& row_path) {
  return row_path + ".first_weights.safetensors";
}

}  // namespace

double RunRow::median_epoch_seconds() const {
  if (result.epoch_seconds.empty()) return std::numeric_limits<double>::quiet_NaN();
  return median(result.epoch_seconds);
}

void RunRow::take_result(TrainingResult of_run) {
  result = std::move(of_run);
  const double seconds = std::accumulate(result.epoch_seconds.begin(), result.epoch_seconds.end(),
                                         result.unfinished_epoch_seconds.value_or(0));
  step_seconds =
      result.breakdown ? result.breakdown->step : seconds / static_cast<double>(result.num_steps);
  if (!result.simulated) return;
  kind = "acted";
  topology = result.simulated->topology;
}

void RunRow::compare_with(const RunRow& baseline, std::size_t num_cores) {
  if (!baseline.is_single()) return;
  const double work = static_cast<double>(epoch_rows) / static_cast<double>(baseline.epoch_rows);
  speedup = work * baseline.median_epoch_seconds() / median_epoch_seconds();
  ideal_speedup = usable_units(*this, num_cores) / usable_units(baseline, num_cores);
  efficiency = *speedup / *ideal_speedup;
}

std::string name_of(const RunRow& row) {
  const std::string name = fmt::format("{} x{}", row.mode, row.devices);
  return row.what_if.empty() ? name : fmt::format("{} ({})", name, row.what_if);
}

RunRow read_row(const JsonFields& fields) {
  RunRow row;
  visit_fields(row, [&](const char* name, auto&& value, const auto& read, auto...) {
    using Read = decltype(std::invoke(read, fields, name));
    if constexpr (std::is_assignable_v<decltype(value), Read>) {
      value = std::invoke(read, fields, name);
    } else {
      std::invoke(read, fields, name);
    }
  });
  row.result.breakdown = read_breakdown(fields, row.step_seconds);
  fields.numbers("step_seconds_band");  // these two are in predicted rows, for the page
  fields.optional_flag("band_verified");
  return row;
}

void write_process_row(const std::string& path, const RunRow& row) {
  Json json = row_json(row);
  json["breakdown"] = nlohmann::json(row.result.breakdown);
  if (row.result.findings) {
    json["findings"] = nlohmann::json(*row.result.findings);
    nn::save_weights(first_weights_of(path), to_state_dict(row.result.findings->first_weights));
  }
  std::string bytes;
  Json::to_cbor(json, bytes);  // which has NaN, unlike JSON
  write_file_atomically(path, bytes);
}

void read_process_row(const std::string& path, RunRow& row) {
  const nlohmann::json json = nlohmann::json::from_cbor(read_text_file(path, "compare"));
  visit_fields(row, [&](const char* name, auto&& value, const auto&...) {
    if constexpr (std::is_lvalue_reference_v<decltype(value)>) {
      if (json.contains(name)) json.at(name).get_to(value);
    }
  });
  TrainingResult& result = row.result;
  if (json.contains("bubble")) json.at("bubble").at("measured").get_to(result.bubble);
  json.at("breakdown").get_to(result.breakdown);
  if (result.breakdown) json.at("breakdown_of").at("step").get_to(result.breakdown->sequence);
  if (json.contains("findings")) {
    result.findings = json.at("findings").get<RunFindings>();
    result.findings->first_weights = keep(nn::load_weights(first_weights_of(path)));
  }
}

nlohmann::ordered_json make_run_file(const std::vector<std::string>& command,
                                     nlohmann::ordered_json config,
                                     const std::vector<RunRow>& rows) {
  nlohmann::ordered_json json = file_head("lockstep.run/1", command);
  json["config"] = std::move(config);
  json["rows"] = nlohmann::ordered_json::array();
  for (const RunRow& row : rows) json["rows"].push_back(row_json(row));
  return json;
}

nlohmann::ordered_json resumed_json(const RunRow& row) {
  return {{"mode", row.mode},
          {"devices", row.devices},
          {"after_step", *row.resumed_after},
          {"max_abs_weight_diff", row.max_abs_weight_diff},
          {"equal", row.verdict->equal()}};
}

void mark_interrupted(nlohmann::ordered_json& json, int signal, std::string_view unit,
                      std::size_t num_done, std::size_t num_planned) {
  json["interrupted"] = {{"signal", signal_name(signal)},
                         {"unit", unit},
                         {"done", num_done},
                         {"planned", num_planned}};
}

int end_bench(const std::string& path, nlohmann::ordered_json& json, int signal,
              std::size_t num_planned) {
  const std::size_t num_done = json["rows"].size();
  if (signal != 0 && num_done < num_planned) {
    mark_interrupted(json, signal, "rows", num_done, num_planned);
  }
  const bool is_written = num_done > 0 && !path.empty();
  if (is_written) write_json(path, json);
  if (signal == 0) return 0;
  return say_interrupted(signal, fmt::format("{} of {} rows", num_done, num_planned),
                         !is_written   ? ""
                         : path == "-" ? "the rows"
                                       : path);
}

void write_json(const std::string& path, const nlohmann::ordered_json& json) {
  // A file name may hold bytes that are not UTF-8; JSON gets a replacement character for each.
  const std::string text =
      json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (path == "-") {
    std::cout << text << std::flush;
    require(std::cout.good(), ErrorCode::Io, "--json", "cannot write to standard output");
    return;
  }
  write_file_atomically(path, text);
}

}  // namespace lockstep::tools
