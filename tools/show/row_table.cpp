#include "tools/show/row_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/runtime/logical_device.h"
#include "tools/record/contention.h"
#include "tools/run/placement.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

// The mean over devices, in percent.
std::string format_busy(const std::vector<double>& fractions) {
  if (fractions.empty()) return "-";
  double total = 0;
  for (const double fraction : fractions) total += fraction;
  return fmt::format("{:.0f} %", 100 * total / static_cast<double>(fractions.size()));
}

// "baseline: single, 1 device with 2 threads".
std::string describe_baseline(const RunRow& baseline) {
  const std::size_t threads = baseline.threads_per_device;
  const std::string what =
      baseline.result.simulated ? fmt::format("1 {}, simulated", baseline.result.simulated->device)
      : is_on_cores(baseline)
          ? fmt::format("1 device with {} {}", threads, threads == 1 ? "thread" : "threads")
          : "1 GPU";
  return fmt::format("baseline: {}, {}", to_string(baseline.placement.mode), what);
}

}  // namespace

std::string table_header(TableWidth width) {
  const std::string narrow =
      fmt::format("{:<6}{:>8}{:>8}{:>8}{:>9}{:>6}{:>11}{:>6}{:>10}{:>8}", "mode", "devices",
                  "epoch", "step", "speed-up", "ideal", "efficiency", "busy", "comm/step", "drift");
  if (width == TableWidth::terminal) return narrow;
  return narrow + fmt::format("{:>9}{:>8}{:>12}{:>12}{:>9}{:>10}", "threads", "batch", "samples/s",
                              "exposed", "loss", "accuracy");
}

std::string table_line(const RunRow& row, const RunRow& baseline, TableWidth width) {
  const Scaling against = scaling(row, baseline, runtime::num_cores());
  const TrainingResult& result = row.result;
  const bool is_reference = row.placement.mode == Mode::single;
  std::string mark = contention_mark(row);
  if (mark.empty() && against.is_too_efficient() && !result.simulated) mark = "+";
  const std::string mode = fmt::format("{}{}", to_string(row.placement.mode), mark);
  // "single" and its mark fill the mode's seven columns; the count has seven of its own.
  const std::string narrow =
      fmt::format("{:<9}{:>5}{:>8}{:>8}{:>9}{:>6}{:>9.0f} %{:>6}{:>10}{:>8}", mode,
                  row.placement.devices.size(), trace::format_seconds(row.median_epoch_seconds()),
                  trace::format_seconds(row.step_seconds()), format_factor(against.speedup),
                  format_factor(against.ideal), 100 * (against.is_noisy() ? 1 : against.efficiency),
                  format_busy(result.busy_fraction), format_bytes(result.comm_bytes_per_step),
                  is_reference ? "-" : fmt::format("{:.1e}", row.max_abs_weight_diff));
  if (width == TableWidth::terminal) return narrow;
  const std::string exposed =
      result.breakdown ? trace::format_seconds(result.breakdown->exposed_comm) : "-";
  const std::string accuracy = result.epoch_validation_loss.empty()
                                   ? fmt::format("{:.2f} %", 100 * result.test_accuracy())
                                   : "-";
  return narrow + fmt::format("{:>9}{:>8}{:>12.0f}{:>12}{:>9.4f}{:>10}", row.threads_per_device,
                              row.batch, static_cast<double>(row.batch) / row.step_seconds(),
                              exposed, result.final_loss, accuracy);
}

std::string table_legend(const RunRow& baseline) {
  const bool is_cpu = is_on_cores(baseline);
  return fmt::format(
      "{}\n"
      "ideal: {} it can use / the baseline's; efficiency: speed-up / ideal\n"
      "busy: fraction of the steps that a device spent computing{}",
      describe_baseline(baseline), is_cpu ? "cores that" : "GPUs that", is_cpu ? " on a core" : "");
}

std::string sharing_note(const std::vector<RunRow>& rows) {
  const RunRow& largest = *std::ranges::max_element(
      rows, {}, [](const RunRow& row) { return row.placement.devices.size(); });
  const std::size_t num_devices = largest.placement.devices.size();
  const std::size_t num_gpus = num_physical_devices(largest.placement);
  if (is_on_cores(rows[0]) || num_devices <= num_gpus) return {};
  return fmt::format("{} virtual devices on {}: this shows overhead, not speed-up", num_devices,
                     count_text(num_gpus, "GPU"));
}

std::vector<std::string> efficiency_notes(const std::vector<RunRow>& rows) {
  std::vector<std::string> notes;
  const auto add_if_any = [&](bool (Scaling::*is_so)() const, std::string_view note) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const RunRow& baseline = baseline_of(rows, i);
      if (rows[i].result.simulated || baseline.placement.mode != Mode::single) continue;
      if ((scaling(rows[i], baseline, runtime::num_cores()).*is_so)()) {
        notes.emplace_back(note);
        return;
      }
    }
  };
  add_if_any(&Scaling::is_noisy, "up to 5 % more than the ideal is noise, and shown as 100 %");
  add_if_any(&Scaling::is_too_efficient,
             "+ faster than its cores or GPUs explain, in two measurements: one device was "
             "disturbed, or a smaller batch fits its caches");
  return notes;
}

std::string factor_note(const std::vector<RunRow>& rows) {
  std::string factors;
  for (const RunRow& row : rows) {
    if (!row.result.simulated) continue;
    factors += fmt::format("{} {} x{} 1 : {:g}", factors.empty() ? "slow motion:" : ",",
                           to_string(row.placement.mode), row.placement.devices.size(),
                           row.result.simulated->factor);
  }
  return factors;
}

}  // namespace lockstep::tools
