#include "tools/show/row_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/record/contention.h"
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
      : baseline.is_on_cores
          ? fmt::format("1 device with {} {}", threads, threads == 1 ? "thread" : "threads")
          : "1 GPU";
  return fmt::format("baseline: {}, {}", baseline.mode, what);
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

std::string table_line(const RunRow& row, TableWidth width) {
  const TrainingResult& result = row.result;
  std::string mark = contention_mark(row);
  if (mark.empty() && row.is_too_efficient() && !result.simulated) mark = "+";
  // "single" and its mark fill the mode's seven columns; the count has seven of its own.
  const std::string narrow =
      fmt::format("{:<9}{:>5}{:>8}{:>8}{:>9}{:>6}{:>9.0f} %{:>6}{:>10}{:>8}", row.mode + mark,
                  row.devices, trace::format_seconds(row.median_epoch_seconds()),
                  trace::format_seconds(row.step_seconds), format_factor(*row.speedup),
                  format_factor(*row.ideal_speedup), 100 * (row.is_noisy() ? 1 : *row.efficiency),
                  format_busy(result.busy_fraction), format_bytes(result.comm_bytes_per_step),
                  row.is_single() ? "-" : fmt::format("{:.1e}", row.max_abs_weight_diff));
  if (width == TableWidth::terminal) return narrow;
  const std::string exposed =
      result.breakdown ? trace::format_seconds(result.breakdown->exposed_comm) : "-";
  const std::string accuracy = result.epoch_validation_loss.empty()
                                   ? fmt::format("{:.2f} %", 100 * result.test_accuracy())
                                   : "-";
  return narrow + fmt::format("{:>9}{:>8}{:>12.0f}{:>12}{:>9.4f}{:>10}", row.threads_per_device,
                              row.batch, row.samples_per_second(), exposed, result.final_loss,
                              accuracy);
}

std::string table_legend(const RunRow& baseline) {
  const bool is_cpu = baseline.is_on_cores;
  return fmt::format(
      "{}\n"
      "ideal: {} it can use / the baseline's; efficiency: speed-up / ideal\n"
      "busy: fraction of the steps that a device spent computing{}",
      describe_baseline(baseline), is_cpu ? "cores that" : "GPUs that", is_cpu ? " on a core" : "");
}

std::string sharing_note(const std::vector<RunRow>& rows) {
  const RunRow& largest = *std::ranges::max_element(rows, {}, &RunRow::devices);
  if (largest.is_on_cores || largest.devices <= largest.physical_devices) return {};
  return fmt::format("{} virtual devices on {}: this shows overhead, not speed-up", largest.devices,
                     count_text(largest.physical_devices, "GPU"));
}

std::vector<std::string> efficiency_notes(const std::vector<RunRow>& rows) {
  std::vector<std::string> notes;
  const auto add_if_any = [&](bool (RunRow::*is_so)() const, std::string_view note) {
    const auto is_noted = [&](const RunRow& row) {
      return !row.result.simulated && (row.*is_so)();
    };
    if (std::ranges::any_of(rows, is_noted)) notes.emplace_back(note);
  };
  add_if_any(&RunRow::is_noisy, "up to 5 % more than the ideal is noise, and shown as 100 %");
  add_if_any(&RunRow::is_too_efficient,
             "+ faster than its cores or GPUs explain, in two measurements: one device was "
             "disturbed, or a smaller batch fits its caches");
  return notes;
}

std::string factor_note(const std::vector<RunRow>& rows) {
  std::string factors;
  for (const RunRow& row : rows) {
    if (!row.result.simulated) continue;
    factors += fmt::format("{} {} x{} 1 : {:g}", factors.empty() ? "slow motion:" : ",", row.mode,
                           row.devices, row.result.simulated->factor);
  }
  return factors;
}

}  // namespace lockstep::tools
