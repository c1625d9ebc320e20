#include "tools/explain/explain.h"

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

// Rows changed by a --what-if do not judge the run, unless the file has no others.
RunRows rows_to_explain(const RunFile& file) {
  for (const char* kind : {"measured", "acted", "predicted"}) {
    RunRows found = rows_of_kind(file, kind, Changes::without);
    if (!found.rows.empty()) return found;
  }
  return rows_of_kind(file, "predicted", Changes::with);
}

std::string parts_sentence(const FileRow& row) {
  const trace::StepBreakdown& step = *row.breakdown;
  const double others = step.data + step.copy + step.wait + step.host + step.unattributed;
  std::string text = fmt::format(
      "A step of {} with batch {} takes {}: forward {}, backward {}, optimizer {}, exposed "
      "communication {}, everything else {}.",
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

// For a row without a baseline.
std::string largest_sentence(const FileRow& row) {
  const StepPart largest = largest_part(*row.breakdown);
  return fmt::format("{}: {:.0f} % of the step is {}: limited by {}.", name_of(row),
                     100 * largest.seconds / row.step_seconds, largest.name, largest.name);
}

// Says so if whole epochs give another speed-up than their steps do; else empty.
std::string epochs_sentence(const FileRow& row, const FileRow& baseline) {
  constexpr double kNotable = 1.25;
  if (!row.speedup || row.mode == "single" || baseline.mode != "single") return {};
  const double steps = row.samples_per_second() / baseline.samples_per_second();
  if (*row.speedup < kNotable * steps && steps < kNotable * *row.speedup) return {};
  return fmt::format(
      " Whole epochs are {:.2f} times as fast as the baseline's, their median steps {:.2f} times: "
      "time between steps, or a few slow steps, make the difference.",
      *row.speedup, steps);
}

Answer bound_answer(const RunFile& file, const RunRows& found, const FileRow& row,
                    const FileRow& baseline) {
  if (!row.breakdown) {
    return {
        "What limits it",
        fmt::format("The file cannot tell: it has no breakdown of a step of {}.", name_of(row))};
  }
  std::string text;
  if (!file.config_value("per_device_batch").empty()) {
    text = growth_sentence(found.rows, file.host.cores);
    if (!text.empty()) text += ' ';
  }
  const std::string bound = bound_sentence(found.rows, file.host.cores, name_of(row));
  text += bound.empty() ? largest_sentence(row) : bound;
  if (row.contended == true && bound.empty()) {
    text += " Another process was at work meanwhile, so every time here may be too long.";
  }
  return {"What limits it", text + epochs_sentence(row, baseline) + " " + parts_sentence(row)};
}

}  // namespace

const FileRow& judged_row(const RunFile& file) {
  const RunRows found = rows_to_explain(file);
  return *found.of_file[row_to_explain(found.rows, file.host.cores)];
}

std::vector<Answer> explain(const RunFile& file) {
  const RunRows found = rows_to_explain(file);
  const std::size_t index = row_to_explain(found.rows, file.host.cores);
  const FileRow& row = *found.of_file[index];
  const RunRow& base = baseline_of(found.rows, index);
  const FileRow& baseline = *found.of_file[static_cast<std::size_t>(&base - found.rows.data())];
  const SharedHardware hardware{file.host.cores, file.config_value("device") != "cuda"};
  const RunRows all = rows_of_kind(file, row.kind, Changes::with);
  std::vector<Answer> answers{bound_answer(file, found, row, baseline)};
  answers.push_back(
      {"What twice the devices would give", doubling_text(found, index, hardware, file.workload)});
  answers.push_back({"From which batch size it pays off", batch_text(all, row, baseline)});
  answers.push_back({"What to change", remedies_text(found, all, index, hardware)});
  if (row.contended == true || baseline.contended == true) {
    for (std::size_t i = 1; i < answers.size(); ++i) {
      answers[i].text += " (From times that other processes disturbed.)";
    }
  }
  const std::string changes = changes_text(all, row);
  if (!changes.empty()) answers.push_back({"What if", changes});
  return answers;
}

namespace {

// "8 GPUs", "2 CPU devices", "One simulated GPU".
std::string devices_text(const RunFile& file, const FileRow& row) {
  const bool is_cpu = row.kind == "measured" && file.config_value("device") != "cuda";
  const std::string noun =
      std::string(row.kind == "acted" ? "simulated " : "") + (is_cpu ? "CPU device"
                                                              : row.kind == "predicted" ? "device"
                                                                                        : "GPU");
  return row.devices == 1 ? "One " + noun : fmt::format("{} {}s", row.devices, noun);
}

// "; predicted: 3.51x" if the file predicts what was simulated.
std::string prediction_text(const RunFile& file, const FileRow& row) {
  if (row.kind == "predicted") return {};
  for (const FileRow& other : file.rows) {
    if (other.kind == "predicted" && other.mode == row.mode && other.devices == row.devices &&
        other.batch == row.batch && other.what_if.empty() && other.speedup && row.kind == "acted") {
      return fmt::format(" (predicted: {})", format_factor(*other.speedup));
    }
  }
  return {};
}

std::string where_text(const FileRow& row) {
  if (row.topology.empty() || row.kind == "measured") return {};
  return row.kind == "acted" ? " of a " + row.topology : " on a " + row.topology;
}

}  // namespace

std::string headline(const RunFile& file) {
  const FileRow& row = judged_row(file);
  const std::string devices = devices_text(file, row) + where_text(row);
  const RunRows rows = rows_of_kind(file, row.kind, Changes::without);
  const std::string limit = bound_limit(rows.rows, file.host.cores);
  const std::string limited = limit.empty() ? "" : "; limited by " + limit;
  if (row.speedup && row.devices > 1) {
    const std::string efficient =
        row.efficiency ? fmt::format("; {:.0f} % efficient", 100 * *row.efficiency) : "";
    return fmt::format("{} {}train {} as fast as one{}{}{}.", devices,
                       row.kind == "predicted" ? "would " : "", format_factor(*row.speedup),
                       prediction_text(file, row), efficient, limited);
  }
  const char* const verb = row.kind == "predicted" ? "would take"
                           : row.devices == 1      ? "takes"
                                                   : "take";
  std::string text = fmt::format("{} {} {} per step of {} rows", devices, verb,
                                 trace::format_seconds(row.step_seconds), row.batch);
  if (row.breakdown) {
    const StepPart largest = largest_part(*row.breakdown);
    text += fmt::format("; {:.0f} % of it is {}", 100 * largest.seconds / row.step_seconds,
                        largest.name);
  }
  return text + limited + ".";
}

}  // namespace lockstep::tools
