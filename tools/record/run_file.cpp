#include "tools/record/run_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "engine/nn/state_dict.h"
#include "engine/runtime/logical_device.h"
#include "tools/record/host_info.h"
#include "tools/run/interruption.h"
#include "tools/run/placement.h"
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

// The hardware that the row's devices can use at once: a core per thread, at most num_cores; or
// GPUs.
double usable_units(const RunRow& row, std::size_t num_cores) {
  const std::size_t num_threads = row.placement.devices.size() * row.threads_per_device;
  return static_cast<double>(is_on_cores(row) ? std::clamp<std::size_t>(num_threads, 1, num_cores)
                                              : num_physical_devices(row.placement));
}

// Visits what the file holds of a row as it is: visit(name, member, is_there). A member that is not
// there has no place in the file.
template <typename Row, typename Visit>
void visit_members(Row& row, const Visit& visit) {
  auto& result = row.result;
  const bool is_recorded = result.breakdown.has_value();
  const bool has_validation = !result.epoch_validation_loss.empty();
  visit("threads_per_device", row.threads_per_device, true);
  visit("batch", row.batch, true);
  visit("contended", row.contended, true);
  visit("iterations", result.num_steps, true);
  visit("epoch_seconds", result.epoch_seconds, true);
  visit("unfinished_epoch_seconds", result.unfinished_epoch_seconds,
        result.unfinished_epoch_seconds.has_value());
  visit("busy_fraction", result.busy_fraction, true);
  visit("step_statistics", result.step_statistics, is_recorded);
  visit("comm_overlap_fraction", result.comm_overlap, is_recorded);
  visit("comm_bytes_per_device_per_step", result.comm_bytes_per_step, true);
  visit("peak_bytes", result.peak_bytes, true);
  visit("peak_bytes_beside_steps", result.peak_bytes_beside_steps,
        !result.peak_bytes_beside_steps.empty());
  visit("final_loss", result.final_loss, true);
  visit("losses", result.losses, true);
  visit("epoch_accuracy", result.epoch_accuracy, !has_validation);
  visit("epoch_validation_loss", result.epoch_validation_loss, has_validation);
}

nlohmann::ordered_json verdict_json(const Verdict& verdict) {
  nlohmann::ordered_json json{{"equal", verdict.equal()},
                              {"first_steps_max_abs_diff", verdict.first_steps_max_abs_diff},
                              {"first_steps_tolerance", verdict.first_steps_tolerance},
                              {"gradient_checks", nlohmann::ordered_json::array()}};
  if (!verdict.incomparable.empty()) json["weights_not_compared"] = verdict.incomparable;
  if (verdict.repeated_drift) json["drift_in_other_precision"] = *verdict.repeated_drift;
  for (const GradientCheck& check : verdict.gradient_checks) {
    json["gradient_checks"].push_back(
        {{"step", check.step}, {"max_relative_error", check.max_relative_error}});
    if (check.num_amplified > 0) {
      json["gradient_checks"].back()["amplified_tensors"] = check.num_amplified;
    }
  }
  return json;
}

// Adds the step that is drawn.
void add_breakdown(nlohmann::ordered_json& json, const trace::StepBreakdown& drawn) {
  for (const auto& [name, seconds] : trace::kBreakdownParts) {
    json["breakdown_seconds"][name] = drawn.*seconds;
  }
  json["breakdown_of"] = {{"step", drawn.sequence}, {"rank", drawn.rank}};
  json["overlapped_comm_seconds"] = drawn.overlapped_comm;
}

trace::StepBreakdown read_breakdown(const nlohmann::json& row) {
  trace::StepBreakdown drawn;
  for (const auto& [name, seconds] : trace::kBreakdownParts) {
    row.at("breakdown_seconds").at(name).get_to(drawn.*seconds);
  }
  drawn.step = row.at("step_seconds");
  drawn.overlapped_comm = row.at("overlapped_comm_seconds");
  drawn.comm = drawn.exposed_comm + drawn.overlapped_comm;
  drawn.sequence = row.at("breakdown_of").at("step");
  drawn.rank = row.at("breakdown_of").at("rank");
  return drawn;
}

nlohmann::ordered_json row_json(const RunRow& row, const RunRow& baseline) {
  const TrainingResult& result = row.result;
  const std::size_t num_devices = row.placement.devices.size();
  const std::size_t num_physical = num_physical_devices(row.placement);
  const Scaling against_baseline = scaling(row, baseline, runtime::num_cores());
  const auto or_null = [&](double value) {
    return baseline.placement.mode == Mode::single ? nlohmann::json(value) : nlohmann::json();
  };
  nlohmann::ordered_json json{
      {"mode", to_string(row.placement.mode)},
      {"devices", num_devices},
      {"physical_devices", num_physical},
      {"virtual", num_physical < num_devices},
      {"kind", result.simulated ? "acted" : "measured"},
      {"median_epoch_seconds", row.median_epoch_seconds()},
      {"step_seconds", row.step_seconds()},
      {"samples_per_second", static_cast<double>(row.batch) / row.step_seconds()},
      {"speedup", or_null(against_baseline.speedup)},
      {"ideal_speedup", or_null(against_baseline.ideal)},
      {"efficiency", or_null(against_baseline.efficiency)},
      {"max_abs_weight_diff", or_null(row.max_abs_weight_diff)},
      {"verdict", row.verdict ? verdict_json(*row.verdict) : nlohmann::ordered_json()}};
  visit_members(row, [&](const char* name, const auto& member, bool is_there) {
    if (is_there) json[name] = nlohmann::json(member);
  });
  if (result.simulated) {
    json["slow_motion"] = result.simulated->factor;
    json["topology"] = result.simulated->topology;
  }
  if (row.measured_again) json["measured_again"] = true;
  if (row.bubble_formula) {
    json["bubble"] = {{"measured", nlohmann::json(result.bubble)},
                      {"formula", *row.bubble_formula}};
  }
  if (result.breakdown) add_breakdown(json, *result.breakdown);
  if (!result.epoch_validation_loss.empty()) {
    json["validation_loss"] = result.epoch_validation_loss.back();
    return json;
  }
  const bool is_unknown = result.stopped_by != 0 && result.epoch_accuracy.empty();
  json["test_accuracy"] = is_unknown ? nlohmann::json() : nlohmann::json(result.test_accuracy());
  return json;
}

}  // namespace

double RunRow::median_epoch_seconds() const {
  if (result.epoch_seconds.empty()) return std::numeric_limits<double>::quiet_NaN();
  return median(result.epoch_seconds);
}

double RunRow::step_seconds() const {
  if (result.breakdown) return result.breakdown->step;
  double total = result.unfinished_epoch_seconds.value_or(0);
  for (const double seconds : result.epoch_seconds) total += seconds;
  return total / static_cast<double>(result.num_steps);
}

bool is_on_cores(const RunRow& row) {
  if (row.result.simulated) return false;
  return row.placement.devices.empty() || row.placement.devices[0].type == DeviceType::cpu;
}

Scaling scaling(const RunRow& row, const RunRow& baseline, std::size_t num_cores) {
  const double ideal = usable_units(row, num_cores) / usable_units(baseline, num_cores);
  const double work =
      static_cast<double>(row.epoch_rows) / static_cast<double>(baseline.epoch_rows);
  const double speedup = work * baseline.median_epoch_seconds() / row.median_epoch_seconds();
  return {speedup, ideal, speedup / ideal};
}

const RunRow& baseline_of(const std::vector<RunRow>& rows, std::size_t index) {
  while (index > 0 && rows[index].placement.mode != Mode::single) --index;
  return rows[index];
}

nlohmann::ordered_json make_run_file(const std::vector<std::string>& command,
                                     nlohmann::ordered_json config,
                                     const std::vector<RunRow>& rows) {
  nlohmann::ordered_json json = file_head("lockstep.run/1", command);
  json["config"] = std::move(config);
  json["rows"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    json["rows"].push_back(row_json(rows[i], baseline_of(rows, i)));
  }
  return json;
}

nlohmann::ordered_json resumed_json(const RunRow& row) {
  return {{"mode", to_string(row.placement.mode)},
          {"devices", row.placement.devices.size()},
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

namespace {

std::string first_weights_of(const std::string& row_path) {
  return row_path + ".first_weights.safetensors";
}

}  // namespace

void write_row(const std::string& path, const RunRow& row) {
  nlohmann::ordered_json json = row_json(row, row);
  if (row.result.findings) {
    json["findings"] = nlohmann::json(*row.result.findings);
    nn::save_weights(first_weights_of(path), to_state_dict(row.result.findings->first_weights));
  }
  std::string bytes;
  nlohmann::ordered_json::to_cbor(json, bytes);  // which has NaN, unlike JSON
  write_file_atomically(path, bytes);
}

void read_row(const std::string& path, RunRow& row) {
  const nlohmann::json json = nlohmann::json::from_cbor(read_text_file(path, "compare"));
  row.placement.num_physical = json.at("physical_devices").get<std::size_t>();
  visit_members(row, [&](const char* name, auto& member, bool) {
    if (json.contains(name)) json.at(name).get_to(member);
  });
  if (json.contains("bubble")) json.at("bubble").at("measured").get_to(row.result.bubble);
  if (json.contains("breakdown_seconds")) row.result.breakdown = read_breakdown(json);
  if (json.contains("findings")) {
    row.result.findings = json.at("findings").get<RunFindings>();
    row.result.findings->first_weights = keep(nn::load_weights(first_weights_of(path)));
  }
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
