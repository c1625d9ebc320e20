#include "tools/show/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <ranges>
#include <utility>

#include "tools/record/run_file.h"
#include "tools/show/judged_rows.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

using trace::format_seconds;

// Rows trained per second, against the baseline's.
double speedup(const RunRow& row, const RunRow& baseline) {
  return row.speedup.value_or(row.samples_per_second() / baseline.samples_per_second());
}

// Acted and predicted devices each have their own hardware.
std::size_t num_hardware_units(const RunRow& row, std::size_t num_cores) {
  if (row.is_on_cores) return num_cores;
  return row.kind == "measured" ? row.physical_devices : row.devices;
}

// True if the row's devices would use more cores (GPUs: physical devices) than there are.
bool is_oversubscribed(const RunRow& row, std::size_t num_cores) {
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
                       speedup(*rows[i], *rows[baseline_of(rows, i)]));
    };
    for (std::size_t i = 1; i < rows.size(); ++i) {
      if (rows[i]->devices < 2 || !rows[i]->result.breakdown) continue;
      if (index == 0 || rank(i) > rank(index)) index = i;
    }
  }

  const RunRow& row() const { return *rows[index]; }
  const RunRow& baseline() const { return *rows[baseline_of(rows, index)]; }
  bool has_several_devices() const { return index > 0; }

  Rows rows;
  std::size_t index = 0;  // the first, unless a row has several devices and a breakdown
  std::size_t num_cores;  // the measured machine's
};

// --- what keeps it from its ideal ---

// A smaller distance from the ideal is not worth a sentence.
constexpr double kCloseToIdeal = 0.95;
// A part of the distance that is smaller than this share of it goes unsaid.
constexpr double kNotable = 0.1;

// The parts of a step, as they are called everywhere.
constexpr std::array<std::string_view, trace::kBreakdownParts.size()> kPartNames = {
    "data",      "copies",  "forward", "backward",    "exposed communication",
    "optimizer", "waiting", "host",    "unattributed"};

double ideal_speedup(const RunRow& row) {
  return row.ideal_speedup.value_or(static_cast<double>(row.devices));
}

double efficiency(const Judged& judged) {
  return speedup(judged.row(), judged.baseline()) / ideal_speedup(judged.row());
}

// How much longer one part of a step is than its share of one device's, and why.
struct Excess {
  double seconds = 0;
  std::string name;    // "the optimizer, which each device repeats"
  std::string reason;  // with the file's figures; may be empty
  bool is_spread_by_rows =
      false;  // as long for any number of rows: more of them make it matter less
};

// Each device computes a part of the model, for all rows.
bool cuts_model(const RunRow& row) {
  return row.mode == "pipeline" || row.mode == "tensor";
}

// Matrix products of fewer rows use a device less well. Cores that compute at the same time also
// slow each other, and no figure tells the one from the other.
Excess computation_excess(const RunRow& row, const RunRow& baseline, double seconds) {
  const std::size_t rows = row.batch / row.devices;
  if (cuts_model(row) || rows >= baseline.batch) {
    return {seconds, "forward and backward, slower than one device's", "", false};
  }
  const std::string fewer =
      fmt::format("{} a device instead of {}", count_text(rows, "row"), baseline.batch);
  if (!row.is_on_cores) return {seconds, "smaller products", fewer, true};
  return {seconds, "slower forward and backward", fewer + ", on cores that share memory", false};
}

Excess optimizer_excess(const RunRow& row, double seconds) {
  if (row.mode == "dp") {
    return {seconds, "the optimizer, which one device runs for all", "", true};
  }
  if (cuts_model(row) || row.mode.starts_with("zero")) {
    return {seconds, "the optimizer", "", true};
  }
  return {seconds, "the optimizer, which each device repeats", "", true};
}

Excess wait_excess(const RunRow& row, double seconds) {
  if (row.mode == "pipeline") return {seconds, "stages that wait for each other", "", false};
  return {seconds, "waiting for the slowest device", "", false};
}

// The row's step if it were as fast as its ideal speed-up says.
double ideal_seconds(const RunRow& row, const RunRow& baseline) {
  const double work = static_cast<double>(row.batch) / static_cast<double>(baseline.batch);
  return work * baseline.step_seconds / ideal_speedup(row);
}

// REQUIRES: both have a breakdown.
std::vector<PartOfStep> compare_parts(const RunRow& row, const RunRow& baseline) {
  const double scale = ideal_seconds(row, baseline) / baseline.step_seconds;
  std::vector<PartOfStep> parts;
  for (std::size_t i = 0; i < kPartNames.size(); ++i) {
    const auto seconds = trace::kBreakdownParts[i].seconds;
    const double one = *baseline.result.breakdown.*seconds;
    parts.push_back({kPartNames[i], one, scale * one, *row.result.breakdown.*seconds});
  }
  return parts;
}

// The parts of the row's step that are longer than their share of the baseline's, longest first.
// REQUIRES: both have a breakdown.
std::vector<Excess> excesses(const RunRow& row, const RunRow& baseline) {
  const auto more = [&](auto... parts) {
    double seconds = 0;
    for (const PartOfStep& part : compare_parts(row, baseline)) {
      if (((part.name == parts) || ...)) seconds += part.row - part.share;
    }
    return seconds;
  };
  std::vector<Excess> found{
      computation_excess(row, baseline, more("forward", "backward")),
      optimizer_excess(row, more("optimizer")),
      {more("exposed communication"), "exposed communication",
       row.result.comm_bytes_per_step > 0
           ? fmt::format("a device sends {}", format_bytes(row.result.comm_bytes_per_step))
           : "",
       true},
      {more("copies"), "copies between devices", "", row.mode == "dp"},
      wait_excess(row, more("waiting")),
      {more("data"), "making the batch", "", false},
      {more("host", "unattributed"), "work on the host", "", true}};
  std::ranges::stable_sort(found, std::greater{}, &Excess::seconds);
  return found;
}

std::string sharing_text(const RunRow& row, std::size_t num_cores) {
  return fmt::format(
      "{} devices share {}", row.devices,
      count_text(num_hardware_units(row, num_cores), row.is_on_cores ? "core" : "GPU"));
}

// Why the row's times cannot be judged; empty if they can.
std::string disturbance(const Judged& judged) {
  const RunRow& row = judged.row();
  if (row.contended == true && row.kind == "acted") {
    return "the cores here could not keep up; use a larger --slow-motion";
  }
  if (row.contended == true || judged.baseline().contended == true) {
    return fmt::format("other processes used the {} meanwhile; repeat it on an idle machine",
                       row.is_on_cores ? "cores" : "GPU");
  }
  return {};
}

// True if an epoch has rows for a larger batch, and the file does not show what that gains.
bool may_grow(const Rows& rows, const RunRow& row) {
  const bool has_sizes = std::ranges::any_of(rows, [&](const RunRow* other) {
    return other->mode == row.mode && other->devices == row.devices && other->batch != row.batch;
  });
  return !has_sizes && !row.result.epoch_seconds.empty() &&
         row.result.epoch_seconds.back() >= 1.5 * row.step_seconds;
}

std::string distance_text(const Judged& judged) {
  const RunRow& row = judged.row();
  const RunRow& baseline = judged.baseline();
  const double ideal = ideal_seconds(row, baseline);
  const double distance = row.step_seconds - ideal;
  if (distance <= (1 - kCloseToIdeal) * row.step_seconds) {
    return efficiency(judged) >= kCloseToIdeal
               ? ""
               : " Its median step is as short as that; longer steps, or time between steps, make "
                 "up the rest.";
  }
  const std::vector<Excess> found = excesses(row, baseline);
  std::string text = fmt::format(" A step takes {} instead of {}. Of the difference,",
                                 format_seconds(row.step_seconds), format_seconds(ideal));
  for (std::size_t i = 0; i < 3; ++i) {
    const Excess& excess = found[i];
    if (i > 0 && excess.seconds < kNotable * distance) break;
    text += fmt::format("{} {}{} {}{}", i == 0 ? "" : ";", format_seconds(excess.seconds),
                        i == 0 ? " are" : "", excess.name,
                        excess.reason.empty() ? "" : " (" + excess.reason + ")");
  }
  text += ".";
  if (found[0].is_spread_by_rows && may_grow(judged.rows, row)) {
    text += " A larger batch gives each device more rows to spread that over.";
  }
  return text;
}

// REQUIRES: judged.has_several_devices().
std::string limit_text(const Judged& judged) {
  const RunRow& row = judged.row();
  const std::string text = fmt::format("{} is {} as fast as one device, where {} would be ideal.",
                                       name_of(row), format_factor(speedup(row, judged.baseline())),
                                       format_factor(ideal_speedup(row)));
  if (is_oversubscribed(row, judged.num_cores)) {
    return text + fmt::format(" {}, so each waits for its turn: this shows overhead, not speed-up.",
                              sharing_text(row, judged.num_cores));
  }
  const std::string disturbed = disturbance(judged);
  if (!disturbed.empty()) return text + fmt::format(" But {}.", disturbed);
  if (efficiency(judged) > RunRow::kMostByNoise) {
    return text + fmt::format(
                      " {:.0f} % of the ideal is more than the hardware gives: one device was "
                      "disturbed, or its data left the caches; measure both again.",
                      100 * efficiency(judged));
  }
  if (!judged.baseline().result.breakdown) return text;
  return text + distance_text(judged);
}

// The end of the headline: what most of the distance is.
std::string lost_to(const Judged& judged) {
  if (!judged.has_several_devices()) return "";
  const RunRow& row = judged.row();
  if (!disturbance(judged).empty()) return "; " + disturbance(judged);
  if (is_oversubscribed(row, judged.num_cores)) return "; " + sharing_text(row, judged.num_cores);
  const bool is_near = efficiency(judged) >= kCloseToIdeal;
  if (is_near || efficiency(judged) > RunRow::kMostByNoise || !judged.baseline().result.breakdown)
    return "";
  const Excess most = excesses(row, judged.baseline())[0];
  if (most.seconds <= 0) return "";
  return fmt::format("; the largest loss: {}", most.name);
}

std::string parts_sentence(const RunRow& row) {
  const trace::StepBreakdown& step = *row.result.breakdown;
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
  if (!row.result.busy_fraction.empty()) {
    const auto [least, most] = std::ranges::minmax(row.result.busy_fraction);
    text += std::round(100 * least) == std::round(100 * most)
                ? fmt::format(" Devices are busy {:.0f} % of the time.", 100 * least)
                : fmt::format(" Devices are busy {:.0f} to {:.0f} % of the time.", 100 * least,
                              100 * most);
  }
  return text;
}

std::string bound_text(const Judged& judged) {
  const RunRow& row = judged.row();
  if (!row.result.breakdown) {
    return fmt::format("The file cannot tell: it has no breakdown of a step of {}.", name_of(row));
  }
  std::string text = judged.has_several_devices() ? limit_text(judged) + " " : "";
  if (row.contended == true && !judged.has_several_devices()) {
    text = "Another process was at work meanwhile, so every time here may be too long. ";
  }
  return text + parts_sentence(row);
}

}  // namespace

const RunRow& judged_row(const RunFile& file) {
  return Judged(file).row();
}

std::vector<PartOfStep> parts_of_judged_row(const RunFile& file) {
  const Judged judged(file);
  if (!judged.has_several_devices() || !judged.baseline().result.breakdown) return {};
  return compare_parts(judged.row(), judged.baseline());
}

std::string limit_sentence(const RunFile& file) {
  const Judged judged(file);
  return judged.has_several_devices() ? limit_text(judged) : "";
}

std::vector<Answer> explain(const RunFile& file) {
  const Judged judged(file);
  const RunRow& row = judged.row();
  const Rows all = rows_of_kind(file, row.kind, Changes::with);
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
std::string devices_text(const RunRow& row) {
  const std::string noun =
      std::string(row.kind == "acted" ? "simulated " : "") + (row.is_on_cores ? "CPU device"
                                                              : row.kind == "predicted" ? "device"
                                                                                        : "GPU");
  return row.devices == 1 ? "One " + noun : fmt::format("{} {}s", row.devices, noun);
}

// "; predicted: 3.51x" if the file predicts what was simulated.
std::string prediction_text(const RunFile& file, const RunRow& row) {
  if (row.kind == "predicted") return {};
  for (const RunRow& other : file.rows) {
    if (other.kind == "predicted" && other.mode == row.mode && other.devices == row.devices &&
        other.batch == row.batch && other.what_if.empty() && other.speedup && row.kind == "acted") {
      return fmt::format(" (predicted: {})", format_factor(*other.speedup));
    }
  }
  return {};
}

std::pair<double, std::string_view> largest_part(const trace::StepBreakdown& step) {
  std::pair<double, std::string_view> largest;
  for (std::size_t i = 0; i < kPartNames.size(); ++i) {
    largest = std::max(largest, {step.*trace::kBreakdownParts[i].seconds, kPartNames[i]});
  }
  return largest;
}

std::string where_text(const RunRow& row) {
  if (row.topology.empty() || row.kind == "measured") return {};
  return row.kind == "acted" ? " of a " + row.topology : " on a " + row.topology;
}

}  // namespace

std::string headline(const RunFile& file) {
  const Judged judged(file);
  const RunRow& row = judged.row();
  const std::string devices = devices_text(row) + where_text(row);
  if (row.speedup && row.devices > 1) {
    return fmt::format("{} {}train {} as fast as one{}; ideal is {}{}.", devices,
                       row.kind == "predicted" ? "would " : "", format_factor(*row.speedup),
                       prediction_text(file, row), format_factor(ideal_speedup(row)),
                       lost_to(judged));
  }
  const char* const verb = row.kind == "predicted" ? "would take"
                           : row.devices == 1      ? "takes"
                                                   : "take";
  std::string text = fmt::format("{} {} {} per step of {} rows", devices, verb,
                                 trace::format_seconds(row.step_seconds), row.batch);
  if (row.result.breakdown) {
    const auto [seconds, name] = largest_part(*row.result.breakdown);
    text += fmt::format("; {:.0f} % of it is {}", 100 * seconds / row.step_seconds, name);
  }
  return text + lost_to(judged) + ".";
}

}  // namespace lockstep::tools
