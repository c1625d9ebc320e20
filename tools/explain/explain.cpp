#include "tools/explain/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/explain/doubling.h"
#include "tools/explain/remedies.h"
#include "tools/explain/run_rows.h"
#include "tools/explain/step_cost.h"
#include "tools/report/bound.h"
#include "tools/report/scaling.h"

namespace lockstep::tools {
namespace {

using trace::format_seconds;

// The efficiency that makes devices worth having.
constexpr double kGoodEfficiency = 0.8;

RunRows rows_to_explain(const RunFile& file) {
  for (const char* kind : {"measured", "acted"}) {
    RunRows found = rows_of_kind(file, kind);
    if (!found.rows.empty()) return found;
  }
  return rows_of_kind(file, "predicted");
}

std::string parts_sentence(const FileRow& row) {
  const trace::StepBreakdown& step = *row.breakdown;
  const double others = step.data + step.copy + step.wait + step.host + step.unattributed;
  std::string text = fmt::format(
      "A step of {} with batch {} takes {}: forward {}, backward {}, optimizer {}, exposed "
      "communication {}, all else {}.",
      name_of(row), row.batch, format_seconds(row.step_seconds), format_seconds(step.forward),
      format_seconds(step.backward), format_seconds(step.optimizer),
      format_seconds(step.exposed_comm), format_seconds(others));
  if (step.overlapped_comm > 0) {
    text += fmt::format(" Another {} of communication is hidden behind computation.",
                        format_seconds(step.overlapped_comm));
  }
  if (!row.busy_fraction.empty()) {
    const auto [least, most] = std::ranges::minmax(row.busy_fraction);
    text += std::round(100 * least) == std::round(100 * most)
                ? fmt::format(" Devices are busy {:.0f} % of the time.", 100 * least)
                : fmt::format(" Devices are busy {:.0f} to {:.0f} % of the time.", 100 * least,
                              100 * most);
  }
  return text;
}

Answer bound_answer(const RunFile& file, const RunRows& found, const FileRow& row) {
  std::string text;
  if (!file.config_value("per_device_batch").empty()) {
    text = growth_sentence(found.rows, file.host.cores);
  }
  const std::string bound = bound_sentence(found.rows, file.host.cores);
  if (!bound.empty()) text += (text.empty() ? "" : " ") + bound;
  if (!row.breakdown) {
    return {
        "What bounds it",
        fmt::format("The file cannot tell: it has no breakdown of a step of {}.", name_of(row))};
  }
  if (row.contended == true && bound.empty()) {
    text += (text.empty() ? "" : " ") + std::string(
                                            "Another process was at work meanwhile, so "
                                            "every time here may be too long.");
  }
  return {"What bounds it", text + (text.empty() ? "" : " ") + parts_sentence(row)};
}

// A row of the same mode, devices and kind with the smallest, or largest, batch.
struct Sizes {
  const FileRow* small;
  const FileRow* large;
};

Sizes sizes_of(const RunRows& found, const FileRow& row) {
  Sizes sizes{&row, &row};
  for (const FileRow* other : found.of_file) {
    if (other->mode != row.mode || other->devices != row.devices) continue;
    if (other->batch < sizes.small->batch) sizes.small = other;
    if (other->batch > sizes.large->batch) sizes.large = other;
  }
  return sizes;
}

std::string line_text(const std::string& name, const StepLine& line) {
  return fmt::format("{} takes {} a row + {}", name, format_seconds(line.seconds_per_row),
                     format_seconds(line.fixed_seconds));
}

Answer batch_answer(const RunRows& found, const FileRow& row, const FileRow& baseline) {
  const std::string title = "From which batch size it pays";
  if (baseline.mode != "single" || !baseline.breakdown || !row.breakdown) {
    return {title,
            "The file cannot tell: it has no single-device row to compare with; `lockstep compare` "
            "measures both."};
  }
  const Sizes several = sizes_of(found, row);
  const bool has_sizes = several.small != several.large;
  const Sizes one = sizes_of(found, baseline);
  const bool has_line = has_sizes && one.small != one.large;
  const StepLine line = has_line ? line_through(*several.small, *several.large) : line_of(row);
  const StepLine line_of_one = has_line ? line_through(*one.small, *one.large) : line_of(baseline);
  std::string text = fmt::format(
      "{} ({}; {}), so n devices pay from batch (fixed_n - fixed_1) / (row_1 - row_n): ",
      line_text(name_of(baseline), line_of_one), line_text(name_of(row), line),
      has_line ? fmt::format("the line through batches {} and {}", several.small->batch,
                             several.large->batch)
               : std::string("forward and backward grow with the batch, the rest stays"));
  const std::optional<double> pays = batch_for_speedup(line_of_one, line, 1);
  if (!pays) {
    return {title,
            text + fmt::format("no batch, since {} needs no less time for a row.", name_of(row))};
  }
  text += fmt::format("{:.0f} rows a step over all devices. ", std::ceil(*pays));
  const double ideal = row.ideal_speedup.value_or(static_cast<double>(row.devices));
  const std::optional<double> good = batch_for_speedup(line_of_one, line, kGoodEfficiency * ideal);
  if (ideal <= 1) {
    text += "The ideal here is 1, since the devices have no more hardware than the single one.";
  } else if (good) {
    text += fmt::format("{:.0f} % of the ideal {:.2g}x are reached from {:.0f} rows.",
                        100 * kGoodEfficiency, ideal, std::ceil(*good));
  } else {
    text += fmt::format(
        "{:.0f} % of the ideal {:.2g}x are reached at no batch: {:.2f}x is the limit.",
        100 * kGoodEfficiency, ideal, line_of_one.seconds_per_row / line.seconds_per_row);
  }
  return {title, text};
}

}  // namespace

const FileRow& judged_row(const RunFile& file) {
  const RunRows found = rows_to_explain(file);
  if (found.rows.empty()) return file.rows[0];
  return *found.of_file[row_to_explain(found.rows, file.host.cores)];
}

std::vector<Answer> explain(const RunFile& file) {
  const RunRows found = rows_to_explain(file);
  if (found.rows.empty()) {
    return {{"What bounds it",
             fmt::format("The file cannot tell: it has rows of {} only, and what is known here are "
                         "single, dp and ddp.",
                         file.rows[0].mode)}};
  }
  const std::size_t index = row_to_explain(found.rows, file.host.cores);
  const FileRow& row = *found.of_file[index];
  const RunRow& base = baseline_of(found.rows, index);
  const FileRow& baseline = *found.of_file[static_cast<std::size_t>(&base - found.rows.data())];
  const SharedHardware hardware{file.host.cores, file.config_value("device") != "cuda"};
  std::vector<Answer> answers{bound_answer(file, found, row)};
  answers.push_back(
      {"What twice the devices would give", doubling_text(found, index, hardware, file.workload)});
  answers.push_back(row.devices == 1 && index == 0
                        ? Answer{"From which batch size it pays",
                                 "The file cannot tell: it has no row with several devices, so "
                                 "what communication costs is unknown; `lockstep compare "
                                 "--modes ddp --devices 2` measures it."}
                        : batch_answer(found, row, baseline));
  answers.push_back({"What to change", remedies_text(found, index, hardware)});
  return answers;
}

}  // namespace lockstep::tools
