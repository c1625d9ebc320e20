#include "tools/explain/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ranges>

#include "tools/explain/limit.h"
#include "tools/report/row_table.h"

namespace lockstep::tools {
namespace {

using trace::format_seconds;

// A smaller difference in speed is not worth a change.
constexpr double kWorthSaving = 0.02;

enum class Changes { with, without };

// The rows of one kind, with or without those that a --what-if changed.
FileRows rows_of_kind(const RunFile& file, std::string_view kind, Changes changes) {
  FileRows found;
  for (const FileRow& row : file.rows) {
    if (row.kind != kind || (changes == Changes::without && !row.what_if.empty())) continue;
    found.push_back(&row);
  }
  return found;
}

// Rows changed by a --what-if do not judge the run, unless the file has no others.
FileRows rows_to_explain(const RunFile& file) {
  for (const char* kind : {"measured", "acted", "predicted"}) {
    FileRows found = rows_of_kind(file, kind, Changes::without);
    if (!found.empty()) return found;
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

Answer bound_answer(const RunFile& file, const FileRows& found, const FileRow& row,
                    const FileRow& baseline) {
  if (!row.breakdown) {
    return {
        "What limits it",
        fmt::format("The file cannot tell: it has no breakdown of a step of {}.", name_of(row))};
  }
  const std::string bound = limit_sentence(found, file.host.cores);
  std::string text = bound.empty() ? largest_sentence(row) : bound;
  if (row.contended == true && bound.empty()) {
    text += " Another process was at work meanwhile, so every time here may be too long.";
  }
  return {"What limits it", text + epochs_sentence(row, baseline) + " " + parts_sentence(row)};
}

// Rows trained per second over whole epochs. If the speed-up is known it is used, because it
// compares epochs.
double epoch_rate(const FileRows& found, std::size_t index) {
  const FileRow& row = *found[index];
  return row.speedup ? *row.speedup * baseline_of(found, index).samples_per_second()
                     : row.samples_per_second();
}

// Half the range of the row's epoch times, as a share of them; the first epoch is warm-up. If there
// are too few epochs to tell, 0, or kDisturbed if another process was at work.
double noise_of(const FileRow& row) {
  constexpr double kDisturbed = 0.2;
  if (row.epoch_seconds.size() < 3) return row.contended == true ? kDisturbed : 0;
  const auto [least, most] = std::ranges::minmax(
      std::ranges::subrange(row.epoch_seconds.begin() + 1, row.epoch_seconds.end()));
  return most > 0 ? (most - least) / (most + least) : 0;
}

// By how much of its rate one row must be faster than the other to be called faster.
double margin(const FileRows& found, std::size_t a, std::size_t b) {
  return std::min(0.5, kWorthSaving + noise_of(*found[a]) + noise_of(*found[b]));
}

// True if a beats b by more than noise and by enough to be worth a change.
bool beats(const FileRows& found, std::size_t a, std::size_t b) {
  return (1 - margin(found, a, b)) * epoch_rate(found, a) > epoch_rate(found, b);
}

// The first row that no other row beats; so single comes before a dp of one device.
std::size_t fastest(const FileRows& found) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < found.size(); ++i) {
    if (beats(found, i, best)) best = i;
  }
  return best;
}

// " dp x4 is as fast within the noise of 7 %."
std::string equals_text(const FileRows& all, std::size_t best) {
  std::string names;
  double widest = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i == best || beats(all, best, i)) continue;
    names += (count++ == 0 ? " " : ", ") + name_of(*all[i]);
    widest = std::max(widest, margin(all, i, best));
  }
  if (count == 0) return {};
  return fmt::format("{} {} as fast within the noise of {:.0f} %.", names,
                     count == 1 ? "is" : "are", 100 * widest);
}

std::string fastest_text(const FileRows& all) {
  const std::size_t index = fastest(all);
  const FileRow& best = *all[index];
  std::string text =
      fmt::format("Fastest in this file: {} with batch {}", name_of(best), best.batch);
  if (best.speedup && best.mode != "single") text += fmt::format(", {:.2f}x", *best.speedup);
  return text +
         fmt::format(", {:.0f} rows a second in its median step.", best.samples_per_second()) +
         equals_text(all, index);
}

// Lists the rows of `all` that differ from `row` only by a --what-if; empty if there are none.
std::string changes_text(const FileRows& all, const FileRow& row) {
  std::string text;
  for (const FileRow* other : all) {
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

}  // namespace

const FileRow& judged_row(const RunFile& file) {
  const FileRows found = rows_to_explain(file);
  return *found[row_to_explain(found, file.host.cores)];
}

std::vector<Answer> explain(const RunFile& file) {
  const FileRows found = rows_to_explain(file);
  const std::size_t index = row_to_explain(found, file.host.cores);
  const FileRow& row = *found[index];
  const FileRow& baseline = baseline_of(found, index);
  const FileRows all = rows_of_kind(file, row.kind, Changes::with);
  std::vector<Answer> answers{bound_answer(file, found, row, baseline),
                              {"What is fastest", fastest_text(all)}};
  if (row.contended == true || baseline.contended == true) {
    answers[1].text += " (From times that other processes disturbed.)";
  }
  const std::string changes = changes_text(all, row);
  if (!changes.empty()) answers.push_back({"What if", changes});
  return answers;
}

namespace {

// "8 GPUs", "2 CPU devices", "One simulated GPU".
std::string devices_text(const FileRow& row) {
  const std::string noun =
      std::string(row.kind == "acted" ? "simulated " : "") + (row.is_on_cores ? "CPU device"
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
  const std::string devices = devices_text(row) + where_text(row);
  const FileRows rows = rows_of_kind(file, row.kind, Changes::without);
  const std::string limit = limit_name(rows, file.host.cores);
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
