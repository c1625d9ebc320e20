#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/explain/answers.h"
#include "tools/explain/step_cost.h"
#include "tools/report/bound.h"
#include "tools/report/row_table.h"

namespace lockstep::tools {
namespace {

using trace::format_seconds;

std::string single_device_text(const FileRow& row, const std::optional<FileWorkload>& workload) {
  const trace::StepBreakdown& step = *row.breakdown;
  const double computation = step.forward + step.backward;
  const double halved = row.step_seconds - computation / 2;
  std::string text = fmt::format(
      "Without communication, which one device does not show: forward and backward halve ({} to "
      "{}), the rest stays ({}): a step of {}, {:.2f} times as fast at most.",
      format_seconds(computation), format_seconds(computation / 2),
      format_seconds(row.step_seconds - computation), format_seconds(halved),
      row.step_seconds / halved);
  if (!workload) return text;
  double num_bytes = 0;
  for (const FileLayer& layer : workload->layers) num_bytes += layer.parameter_bytes;
  return text + fmt::format(" Each of two devices would send {} a step: 2(n-1)/n of the gradients.",
                            format_bytes(static_cast<std::size_t>(std::min(num_bytes, 1e18))));
}

// "Measured in this file: ddp x4 takes 8.75 ms."
std::string measured_text(const RunRows& found, const FileRow& row, std::size_t num_cores) {
  for (std::size_t i = 0; i < found.rows.size(); ++i) {
    const FileRow& other = *found.of_file[i];
    if (other.mode != row.mode || other.devices != 2 * row.devices || other.batch != row.batch ||
        other.what_if != row.what_if) {
      continue;
    }
    return fmt::format(
        " The file has that row, {}: {} {} {}{}.", other.kind, name_of(other),
        other.kind == "predicted" ? "takes" : "took", format_seconds(other.step_seconds),
        is_oversubscribed(found.rows[i], num_cores) ? ", with devices that share their hardware"
                                                    : "");
  }
  return {};
}

}  // namespace

std::string doubling_text(const RunRows& found, std::size_t index, const SharedHardware& hardware,
                          const std::optional<FileWorkload>& workload) {
  const FileRow& row = *found.of_file[index];
  if (!row.breakdown) return "The file cannot tell: it has no breakdown of a step.";
  if (row.devices == 1) {
    return single_device_text(row, workload) + measured_text(found, row, hardware.num_cores);
  }
  if (is_oversubscribed(found.rows[index], hardware.num_cores)) {
    return fmt::format(
        "The file cannot tell: the {} devices of every row share {} {}, so it has no step of "
        "devices with hardware of their own. More devices would share the same hardware.{}",
        row.devices, hardware.is_cpu ? hardware.num_cores : row.physical_devices,
        hardware.is_cpu ? "cores" : "GPUs", measured_text(found, row, hardware.num_cores));
  }
  if (row.mode != "dp" && row.mode != "ddp") {
    return fmt::format(
        "The file cannot tell: how traffic grows with the devices is known for dp and ddp, not for "
        "{}.{}",
        row.mode, measured_text(found, row, hardware.num_cores));
  }
  const DoubledStep next = double_devices(row);
  const double growth =
      next.comm - next.hidden - (row.step_seconds - next.fixed - 2 * next.computation);
  std::string text = fmt::format(
      "{} x{} with the same batch: forward and backward halve ({} to {}), the optimizer and other "
      "fixed work stay ({}), communication takes {:.2f} times as long, like its bytes ({} in all, "
      "{} of it hidden behind backward): {} + {} + {} = {} a step, {:.2f} times as fast as "
      "now; 2 would be ideal. With twice the batch, too: {} a step, {:.2f} times the rows a "
      "second.",
      row.mode, 2 * row.devices, format_seconds(2 * next.computation),
      format_seconds(next.computation), format_seconds(next.fixed), next.traffic_factor,
      format_seconds(next.comm), format_seconds(next.hidden), format_seconds(next.computation),
      format_seconds(next.fixed), format_seconds(next.comm - next.hidden),
      format_seconds(next.step), row.step_seconds / next.step,
      format_seconds(row.step_seconds + growth),
      2 * row.step_seconds / (row.step_seconds + growth));
  const std::size_t num_needed = 2 * row.devices * (hardware.is_cpu ? row.threads_per_device : 1);
  const std::size_t num_units = hardware.is_cpu ? hardware.num_cores : row.physical_devices;
  if (row.kind == "measured" && num_needed > num_units) {
    text += fmt::format(" That takes {} {}; the run had {}.", num_needed,
                        hardware.is_cpu ? "cores" : "GPUs", num_units);
  }
  return text + measured_text(found, row, hardware.num_cores);
}

namespace {

using trace::format_seconds;

// Devices with a lower efficiency are not worth having.
constexpr double kGoodEfficiency = 0.8;
// If the slopes of two lines differ by less than this share, their crossing is too uncertain to
// state.
constexpr double kLeastGain = 0.05;

// `row` and the rows that differ from it only in the batch, sorted by batch.
std::vector<const FileRow*> sizes_of(const RunRows& all, const FileRow& row) {
  std::vector<const FileRow*> sizes;
  for (const FileRow* other : all.of_file) {
    const bool is_plain =
        other->mode == row.mode && other->devices == row.devices && other->what_if == row.what_if;
    if (is_plain || (row.what_if.empty() && is_changed_in(*other, row, "batch"))) {
      sizes.push_back(other);
    }
  }
  std::ranges::stable_sort(sizes, {}, &FileRow::batch);
  return sizes;
}

bool has_growth(const std::vector<const FileRow*>& sizes) {
  return sizes.front()->batch != sizes.back()->batch;
}

std::string line_text(const std::string& name, const StepLine& line) {
  return fmt::format("{} takes {} a row + {}", name, format_seconds(line.seconds_per_row),
                     format_seconds(line.fixed_seconds));
}

std::string rows_text(double batch) {
  return fmt::format("{:.0f} row{}", batch, batch == 1 ? "" : "s");
}

struct Lines {
  StepLine one, several;
  std::size_t largest_batch;  // the largest batch in the file
};

std::string crossing_text(const Lines& lines, const FileRow& row) {
  const auto devices = static_cast<double>(row.devices);
  // Fewer rows than devices leave some without any.
  const auto whole = [&](double batch) { return std::max(std::ceil(batch), devices); };
  const auto guess = [&](double batch) {
    return batch > static_cast<double>(lines.largest_batch)
               ? fmt::format(" (more than the file's {}, so a guess)", lines.largest_batch)
               : std::string();
  };
  const double gain = lines.one.seconds_per_row - lines.several.seconds_per_row;
  if (gain < -kLeastGain * lines.one.seconds_per_row) {
    return fmt::format("no batch, since {} needs no less time for a row.", name_of(row));
  }
  if (gain <= kLeastGain * lines.one.seconds_per_row) {
    return "the file cannot tell, since both need about as long for a row.";
  }
  const double pays = whole(*batch_for_speedup(lines.one, lines.several, 1));
  std::string text = fmt::format("{} a step over all devices{}. ", rows_text(pays), guess(pays));
  const double ideal = row.ideal_speedup.value_or(devices);
  if (ideal <= 1) {
    return text +
           "The ideal here is 1, since the devices have no more hardware than the single one.";
  }
  const std::optional<double> good =
      batch_for_speedup(lines.one, lines.several, kGoodEfficiency * ideal);
  text += fmt::format("{:.0f} % of the ideal {:.3g}x ", 100 * kGoodEfficiency, ideal);
  if (!good) {
    return text + fmt::format("are not reached along these lines: they tend to {:.2f}x.",
                              lines.one.seconds_per_row / lines.several.seconds_per_row);
  }
  return text + fmt::format("are reached from {}{}.", rows_text(whole(*good)), guess(whole(*good)));
}

}  // namespace

std::string batch_text(const RunRows& all, const FileRow& row, const FileRow& baseline) {
  if (row.devices == 1) {
    return "The file cannot tell: it has no row with several devices, so what communication costs "
           "is unknown; `lockstep compare --modes ddp --devices 2` measures it.";
  }
  if (baseline.mode != "single" || !baseline.breakdown || !row.breakdown) {
    return "The file cannot tell: it has no single-device row to compare with; `lockstep compare` "
           "measures both.";
  }
  const std::vector<const FileRow*> several = sizes_of(all, row), one = sizes_of(all, baseline);
  Lines lines{line_of(baseline), line_of(row), row.batch};
  std::string how = "forward and backward grow with the batch, the rest stays";
  const char* const remedy = row.kind == "predicted"
                                 ? "`--what-if batch=64,1024` of lockstep predict"
                                 : "`lockstep compare --per-device-batch 64,1024`";
  if (has_growth(several) && has_growth(one)) {
    lines = {line_through(*one.front(), *one.back()),
             line_through(*several.front(), *several.back()), several.back()->batch};
    how = fmt::format("the line through batches {} and {}", several.front()->batch,
                      several.back()->batch);
    if (!is_on_line(lines.one, one) || !is_on_line(lines.several, several)) {
      return "The file cannot tell: its steps do not grow along a line over the batch.";
    }
  } else if (!is_proportional(baseline, row,
                              row.ideal_speedup.value_or(static_cast<double>(row.devices)))) {
    return fmt::format(
        "The file cannot tell: forward and backward take {} on one device and {} on {}, not in "
        "proportion to the rows of each, so one batch does not say what another would take; {} "
        "shows it.",
        format_seconds(baseline.breakdown->forward + baseline.breakdown->backward),
        format_seconds(row.breakdown->forward + row.breakdown->backward), row.devices, remedy);
  }
  return fmt::format(
             "{} ({}; {}), so n devices pay off from batch (fixed_n - fixed_1) / (row_1 - row_n): ",
             line_text(name_of(baseline), lines.one), line_text(name_of(row), lines.several), how) +
         crossing_text(lines, row);
}

std::string changes_text(const RunRows& all, const FileRow& row) {
  std::string text;
  for (const FileRow* other : all.of_file) {
    if (other->mode != row.mode || other->devices != row.devices || other->what_if == row.what_if) {
      continue;
    }
    const double factor = other->samples_per_second() / row.samples_per_second();
    text += fmt::format(
        "{}{}: a step of {} x{} with batch {} takes {} instead of {}{}, {:.2f} times the rows a "
        "second.",
        text.empty() ? "" : " ", other->what_if.empty() ? "unchanged" : other->what_if, row.mode,
        row.devices, other->batch, format_seconds(other->step_seconds),
        format_seconds(row.step_seconds),
        other->batch == row.batch ? "" : fmt::format(" with batch {}", row.batch), factor);
  }
  return text;
}

}  // namespace lockstep::tools
