#include "tools/explain/limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep::tools {
namespace {

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

Cause cause_of(const FileRows& rows, std::size_t index, const Part& largest,
               std::size_t num_cores) {
  const FileRow& row = *rows[index];
  const FileRow& baseline = baseline_of(rows, index);
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

}  // namespace

const FileRow& baseline_of(const FileRows& rows, std::size_t index) {
  while (index > 0 && rows[index]->mode != "single") --index;
  return *rows[index];
}

double speedup(const FileRow& row, const FileRow& baseline) {
  if (row.speedup) return *row.speedup;
  return row.samples_per_second() / baseline.samples_per_second();
}

StepPart largest_part(const trace::StepBreakdown& step) {
  const Part beside = overheads(step)[0];
  if (computation(step) >= beside.seconds) return {computation(step), "computation"};
  return {beside.seconds, beside.name};
}

std::size_t row_to_explain(const FileRows& rows, std::size_t num_cores) {
  std::size_t found = 0;
  const auto rank = [&](std::size_t i) {
    return std::pair(!is_oversubscribed(*rows[i], num_cores),
                     speedup(*rows[i], baseline_of(rows, i)));
  };
  for (std::size_t i = 1; i < rows.size(); ++i) {
    if (rows[i]->devices < 2 || !rows[i]->breakdown) continue;
    if (found == 0 || rank(i) > rank(found)) found = i;
  }
  return found;
}

std::string limit_name(const FileRows& rows, std::size_t num_cores) {
  const std::size_t index = rows.empty() ? 0 : row_to_explain(rows, num_cores);
  if (index == 0) return {};
  const Part largest = overheads(*rows[index]->breakdown)[0];
  return cause_of(rows, index, largest, num_cores).limit;
}

std::string limit_sentence(const FileRows& rows, std::size_t num_cores) {
  const std::size_t index = rows.empty() ? 0 : row_to_explain(rows, num_cores);
  if (index == 0) return {};
  const FileRow& row = *rows[index];
  const FileRow& baseline = baseline_of(rows, index);
  const trace::StepBreakdown& step = *row.breakdown;
  const Part largest = overheads(step)[0];
  const auto percent = [&](double seconds) { return 100 * seconds / step.step; };
  const std::string beside =
      percent(largest.seconds) < 0.5
          ? ""
          : fmt::format(", {:.0f} % {}", percent(largest.seconds), largest.name);
  return fmt::format("{}: {:.0f} % of the step is computation{}: limited by {}.", name_of(row),
                     percent(computation(step)), beside,
                     cause_of(rows, index, largest, num_cores).text()) +
         too_efficient_note(speedup(row, baseline) / ideal_speedup(row));
}

}  // namespace lockstep::tools
