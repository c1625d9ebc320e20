#include "tools/explain/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ranges>
#include <utility>

#include "tools/report/row_table.h"

namespace lockstep::tools {
namespace {

using trace::format_seconds;

// --- the rows that are judged together ---

using FileRows = std::vector<const FileRow*>;

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

// The last single-device row at or before it, or the first row if there is none.
const FileRow& baseline_of(const FileRows& rows, std::size_t index) {
  while (index > 0 && rows[index]->mode != "single") --index;
  return *rows[index];
}

// Rows trained per second, against the baseline's.
double speedup(const FileRow& row, const FileRow& baseline) {
  return row.speedup.value_or(row.samples_per_second() / baseline.samples_per_second());
}

// Acted and predicted devices each have their own hardware.
std::size_t num_hardware_units(const FileRow& row, std::size_t num_cores) {
  if (row.is_on_cores) return num_cores;
  return row.kind == "measured" ? row.physical_devices : row.devices;
}

// True if the row's devices would use more cores (GPUs: physical devices) than there are.
bool is_oversubscribed(const FileRow& row, std::size_t num_cores) {
  const std::size_t per_device = row.is_on_cores ? row.threads_per_device : 1;
  return row.devices * per_device > num_hardware_units(row, num_cores);
}

// The rows that judge the run, and the one of them that stands for it.
struct Judged {
  explicit Judged(const RunFile& file) : num_cores(file.host.cores) {
    for (const char* kind : {"measured", "acted", "predicted"}) {
      if (rows.empty()) rows = rows_of_kind(file, kind, Changes::without);
    }
    if (rows.empty()) rows = rows_of_kind(file, "predicted", Changes::with);
    const auto rank = [&](std::size_t i) {
      return std::pair(!is_oversubscribed(*rows[i], num_cores),
                       speedup(*rows[i], baseline_of(rows, i)));
    };
    for (std::size_t i = 1; i < rows.size(); ++i) {
      if (rows[i]->devices < 2 || !rows[i]->breakdown) continue;
      if (index == 0 || rank(i) > rank(index)) index = i;
    }
  }

  const FileRow& row() const { return *rows[index]; }
  const FileRow& baseline() const { return baseline_of(rows, index); }
  bool has_several_devices() const { return index > 0; }

  FileRows rows;
  std::size_t index = 0;  // the first, unless a row has several devices and a breakdown
  std::size_t num_cores;  // of the machine that was measured
};

// --- what limits it ---

// A larger share of the step is worth a remedy.
constexpr double kNotable = 0.2;
// A device that computes longer than its share by more than this is not just unlucky.
constexpr double kNotShared = 1.2;
// A higher efficiency than this means more than an unlucky baseline.
constexpr double kTooEfficient = 1.1;

double computation(const trace::StepBreakdown& step) {
  return step.forward + step.backward + step.optimizer;
}

constexpr const char* kUnsharedWork = "work that does not shrink with more devices";

struct Part {
  double seconds;
  const char* name;
  const char* remedy;
};

// The parts of a step other than computation, largest first.
std::array<Part, 5> overheads(const trace::StepBreakdown& step) {
  std::array<Part, 5> parts{
      {{step.exposed_comm, "exposed communication",
        "a larger batch per device gives the same messages more computation to hide behind"},
       {step.wait, "waiting for other devices",
        "a larger batch per device makes each of them wait less often"},
       {step.copy, "copies between devices",
        "a larger batch per device spreads them over more rows"},
       {step.data, "waiting for data", "batches are made too slowly, by one thread"},
       {step.host + step.unattributed, "work on the host",
        "a larger batch per device spreads it over more rows"}}};
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.seconds > b.seconds; });
  return parts;
}

double ideal_speedup(const FileRow& row) {
  return row.ideal_speedup.value_or(static_cast<double>(row.devices));
}

std::string too_efficient_note(double efficiency) {
  if (efficiency <= kTooEfficient) return {};
  return fmt::format(
      " {:.0f} % of the ideal is more than the hardware gives: the baseline was disturbed, or its "
      "data left the caches; measure both again.",
      100 * efficiency);
}

// How many times as long the row computes as its share of the baseline's computation would take.
double unshared_factor(const FileRow& row, const FileRow& baseline, double ideal) {
  if (!baseline.breakdown) return 1;
  const double work = static_cast<double>(row.batch) / static_cast<double>(baseline.batch);
  return computation(*row.breakdown) / (work * computation(*baseline.breakdown) / ideal);
}

// The limit and the advice both continue the words "limited by".
struct Cause {
  std::string limit;
  std::string advice;

  std::string text() const { return advice.empty() ? limit : limit + "; " + advice; }
};

// True if the file has this mode on at least so many devices. The judged row is faster, so that
// mode is no advice.
bool has_tried(const FileRows& rows, std::string_view mode, std::size_t num_devices) {
  return std::ranges::any_of(
      rows, [&](const FileRow* row) { return row->mode == mode && row->devices >= num_devices; });
}

Cause shared_hardware(const FileRow& row, std::size_t num_cores) {
  const std::size_t count = num_hardware_units(row, num_cores);
  return {fmt::format("the {} {}{} that the devices share", count, row.is_on_cores ? "core" : "GPU",
                      count == 1 ? "" : "s"),
          ""};
}

// True if the file has these devices with other batches: it then shows what a larger one gains.
bool has_sizes(const FileRows& rows, const FileRow& row) {
  return std::ranges::any_of(rows, [&](const FileRow* other) {
    return other->mode == row.mode && other->devices == row.devices && other->batch != row.batch;
  });
}

// REQUIRES: judged.has_several_devices().
Cause cause_of(const Judged& judged) {
  const FileRows& rows = judged.rows;
  const std::size_t num_cores = judged.num_cores;
  const FileRow& row = judged.row();
  const FileRow& baseline = judged.baseline();
  const bool has_advice = !has_sizes(rows, row);
  if (is_oversubscribed(row, num_cores)) return shared_hardware(row, num_cores);
  if (row.contended == true && row.kind == "acted") {
    return {"the cores here, which could not keep up", "use a larger --slow-motion"};
  }
  if (row.contended == true || baseline.contended == true) {
    return {fmt::format("other processes, which used the {} meanwhile",
                        row.is_on_cores ? "cores" : "GPU"),
            "repeat it on an idle machine"};
  }
  if (row.mode == "pipeline") {
    return {"stages that wait for each other", "more --micro-batches shorten the bubble"};
  }
  const trace::StepBreakdown& step = *row.breakdown;
  const Part largest = overheads(step)[0];
  const bool is_notable = largest.seconds >= kNotable * step.step;
  const double ideal = ideal_speedup(row);
  const double factor = unshared_factor(row, baseline, ideal);
  const double excess = computation(step) * (1 - 1 / factor);
  if (factor >= kNotShared && (!is_notable || excess > largest.seconds)) {
    return {
        kUnsharedWork,
        fmt::format("each computes {:.1f}x its share of one device's time, since {}small matrix "
                    "products are inefficient{}",
                    factor,
                    row.mode.starts_with("zero") ? "" : "it repeats the full optimizer update and ",
                    has_advice ? "; a larger batch per device helps" : "")};
  }
  if (is_notable) {
    const bool is_copy = largest.seconds == step.copy;
    const bool has_ddp = has_tried(rows, "ddp", row.devices);
    if (!has_advice) return {largest.name, ""};
    return {largest.name, is_copy && !has_ddp ? std::string(largest.remedy) + ", and ddp has none"
                                              : largest.remedy};
  }
  // The judged row is the fastest, so rows with more devices were slower or had no hardware.
  const bool has_more = has_tried(rows, row.mode, row.devices + 1);
  if (speedup(row, baseline) / ideal > kTooEfficient || has_more) return {"computation", ""};
  return {
      "computation, as it should be",
      fmt::format("more devices{} would help", row.is_on_cores ? " with cores of their own" : "")};
}

// The largest part of a step, computation or another one.
std::pair<double, const char*> largest_part(const trace::StepBreakdown& step) {
  const Part beside = overheads(step)[0];
  if (computation(step) >= beside.seconds) return {computation(step), "computation"};
  return {beside.seconds, beside.name};
}

std::string limit_text(const Judged& judged) {
  if (!judged.has_several_devices()) return {};
  const FileRow& row = judged.row();
  const trace::StepBreakdown& step = *row.breakdown;
  const Part largest = overheads(step)[0];
  const auto percent = [&](double seconds) { return 100 * seconds / step.step; };
  const std::string beside =
      percent(largest.seconds) < 0.5
          ? ""
          : fmt::format(", {:.0f} % {}", percent(largest.seconds), largest.name);
  return fmt::format("{}: {:.0f} % of the step is computation{}: limited by {}.", name_of(row),
                     percent(computation(step)), beside, cause_of(judged).text()) +
         too_efficient_note(speedup(row, judged.baseline()) / ideal_speedup(row));
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
  const auto [seconds, name] = largest_part(*row.breakdown);
  return fmt::format("{}: {:.0f} % of the step is {}: limited by {}.", name_of(row),
                     100 * seconds / row.step_seconds, name, name);
}

std::string bound_text(const Judged& judged) {
  const FileRow& row = judged.row();
  if (!row.breakdown) {
    return fmt::format("The file cannot tell: it has no breakdown of a step of {}.", name_of(row));
  }
  std::string text = judged.has_several_devices() ? limit_text(judged) : largest_sentence(row);
  if (row.contended == true && !judged.has_several_devices()) {
    text += " Another process was at work meanwhile, so every time here may be too long.";
  }
  return text + " " + parts_sentence(row);
}

// --- what is fastest ---

// A smaller difference in speed is not worth a change.
constexpr double kWorthSaving = 0.02;

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
  return Judged(file).row();
}

std::string limit_sentence(const RunFile& file) {
  return limit_text(Judged(file));
}

std::vector<Answer> explain(const RunFile& file) {
  const Judged judged(file);
  const FileRow& row = judged.row();
  const FileRows all = rows_of_kind(file, row.kind, Changes::with);
  std::vector<Answer> answers{{"What limits it", bound_text(judged)},
                              {"What is fastest", fastest_text(all)}};
  if (row.contended == true || judged.baseline().contended == true) {
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
  const Judged judged(file);
  const FileRow& row = judged.row();
  const std::string devices = devices_text(row) + where_text(row);
  const std::string limited =
      judged.has_several_devices() ? "; limited by " + cause_of(judged).limit : "";
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
    const auto [part, name] = largest_part(*row.breakdown);
    text += fmt::format("; {:.0f} % of it is {}", 100 * part / row.step_seconds, name);
  }
  return text + limited + ".";
}

}  // namespace lockstep::tools
