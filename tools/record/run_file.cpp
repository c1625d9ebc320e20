#include "tools/record/run_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "engine/runtime/logical_device.h"
#include "tools/record/host_info.h"
#include "tools/run/interruption.h"
#include "tools/run/placement.h"
#include "tools/run/settings.h"
#include "tools/run/step_statistics.h"

namespace lockstep::tools {
namespace {

// The hardware that the row's devices can use at once: a core per thread, at most num_cores; or
// GPUs.
double usable_units(const RunRow& row, std::size_t num_cores) {
  const std::size_t num_threads = row.placement.devices.size() * row.threads_per_device;
  return static_cast<double>(is_on_cores(row) ? std::clamp<std::size_t>(num_threads, 1, num_cores)
                                              : num_physical_devices(row.placement));
}

nlohmann::ordered_json parts_json(const trace::StepBreakdown& breakdown) {
  nlohmann::ordered_json json;
  for (const auto& [name, seconds] : trace::kBreakdownParts) json[name] = breakdown.*seconds;
  return json;
}

// Adds the step that is drawn, and the statistics over all steps.
void add_breakdown(nlohmann::ordered_json& json, const TrainingResult& result) {
  const trace::StepBreakdown& drawn = *result.breakdown;
  json["breakdown_seconds"] = parts_json(drawn);
  json["breakdown_of"] = {{"step", drawn.sequence}, {"rank", drawn.rank}};
  json["overlapped_comm_seconds"] = drawn.overlapped_comm;
  const StepStatistics& statistics = result.step_statistics;
  nlohmann::ordered_json all{{"num_steps", statistics.num_steps}};
  for (const auto& [name, step] : {std::pair("median_seconds", &statistics.median),
                                   std::pair("p90_seconds", &statistics.p90)}) {
    all[name] = parts_json(*step);
    for (const auto& [total, seconds] : trace::kBreakdownTotals) all[name][total] = step->*seconds;
  }
  json["step_statistics"] = all;
  json["comm_overlap_fraction"] = nlohmann::json::array();
  for (const std::optional<double>& fraction : result.comm_overlap) {
    json["comm_overlap_fraction"].push_back(fraction ? nlohmann::ordered_json(*fraction)
                                                     : nlohmann::ordered_json());
  }
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
      {"threads_per_device", row.threads_per_device},
      {"batch", row.batch},
      {"contended", row.contended ? nlohmann::json(*row.contended) : nlohmann::json()},
      {"kind", result.simulated ? "acted" : "measured"},
      {"iterations", result.num_steps},
      {"epoch_seconds", result.epoch_seconds},
      {"median_epoch_seconds", row.median_epoch_seconds()},
      {"step_seconds", row.step_seconds()},
      {"samples_per_second", static_cast<double>(row.batch) / row.step_seconds()},
      {"speedup", or_null(against_baseline.speedup)},
      {"ideal_speedup", or_null(against_baseline.ideal)},
      {"efficiency", or_null(against_baseline.efficiency)},
      {"busy_fraction", result.busy_fraction}};
  if (result.unfinished_epoch_seconds) {
    json["unfinished_epoch_seconds"] = *result.unfinished_epoch_seconds;
  }
  if (result.simulated) {
    json["slow_motion"] = result.simulated->factor;
    json["topology"] = result.simulated->topology;
  }
  if (row.measured_again) json["measured_again"] = true;
  if (row.bubble_formula) {
    json["bubble"] = {{"measured", nullptr}, {"formula", *row.bubble_formula}};
    if (result.bubble) json["bubble"]["measured"] = *result.bubble;
  }
  if (result.breakdown) add_breakdown(json, result);
  json["comm_bytes_per_device_per_step"] = result.comm_bytes_per_step;
  json["peak_bytes"] = result.peak_bytes;
  json["max_abs_weight_diff"] = or_null(row.max_abs_weight_diff);
  json["verdict"] = row.verdict ? verdict_json(*row.verdict) : nlohmann::ordered_json();
  json["final_loss"] = result.final_loss;
  json["losses"] = {{"steps_per_point", result.losses.steps_per_point},
                    {"mean", result.losses.mean}};
  if (!result.epoch_validation_loss.empty()) {
    json["validation_loss"] = result.epoch_validation_loss.back();
    json["epoch_validation_loss"] = result.epoch_validation_loss;
    return json;
  }
  const bool is_unknown = result.stopped_by != 0 && result.epoch_accuracy.empty();
  json["test_accuracy"] = is_unknown ? nlohmann::json() : nlohmann::json(result.test_accuracy());
  json["epoch_accuracy"] = result.epoch_accuracy;
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
                                     const TrainingFlags& flags, const TrainingTask& task,
                                     const std::vector<RunRow>& rows) {
  nlohmann::ordered_json json = file_head("lockstep.run/1", command);
  json["config"] = flags_json(flags, task);
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
