#include "tools/report/bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "tools/training/placement.h"

namespace lockstep::tools {
namespace {

// The hardware that the row's devices can use at once: a core per thread, at most num_cores; or
// GPUs.
double usable_units(const RunRow& row, std::size_t num_cores) {
  const std::size_t num_threads = row.placement.devices.size() * row.threads_per_device;
  return static_cast<double>(is_on_cores(row) ? std::clamp<std::size_t>(num_threads, 1, num_cores)
                                              : num_physical_devices(row.placement));
}

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
       {step.host + step.unattributed, "work of the host",
        "a larger batch per device spreads it over more rows"}}};
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.seconds > b.seconds; });
  return parts;
}

std::size_t num_hardware_units(const RunRow& row, std::size_t num_cores) {
  return is_on_cores(row) ? num_cores : num_physical_devices(row.placement);
}

// True if the row's devices would use more cores (GPUs: physical devices) than there are.
bool is_oversubscribed(const RunRow& row, std::size_t num_cores) {
  const std::size_t per_device = is_on_cores(row) ? row.threads_per_device : 1;
  return row.placement.devices.size() * per_device > num_hardware_units(row, num_cores);
}

double speedup(const std::vector<RunRow>& rows, std::size_t index, std::size_t num_cores) {
  return scaling(rows[index], baseline_of(rows, index), num_cores).speedup;
}

std::string name_of(const RunRow& row) {
  return fmt::format("{} x{}", to_string(row.placement.mode), row.placement.devices.size());
}

bool is_too_efficient(const RunRow& row, const RunRow& baseline, std::size_t num_cores) {
  return scaling(row, baseline, num_cores).efficiency > kTooEfficient;
}

std::string too_efficient_note(const RunRow& row, const RunRow& baseline, std::size_t num_cores) {
  if (!is_too_efficient(row, baseline, num_cores)) return {};
  return fmt::format(
      " {:.0f} % of the ideal is more than the hardware gives: the baseline was disturbed, or its "
      "data left the caches; measure both again.",
      100 * scaling(row, baseline, num_cores).efficiency);
}

// How many times as long the row computes as its share of the baseline's computation would take.
double unshared_factor(const RunRow& row, const RunRow& baseline, double ideal) {
  if (!baseline.result.breakdown) return 1;
  const double work = static_cast<double>(row.batch) / static_cast<double>(baseline.batch);
  return computation(*row.result.breakdown) /
         (work * computation(*baseline.result.breakdown) / ideal);
}

// The limit and the advice both continue the words "limited by".
struct Cause {
  std::string limit;
  std::string advice;

  std::string text() const { return advice.empty() ? limit : limit + "; " + advice; }
};

// True if the file has this mode on at least so many devices. The judged row is faster, so that
// mode is no advice.
bool has_tried(const std::vector<RunRow>& rows, Mode mode, std::size_t num_devices) {
  return std::ranges::any_of(rows, [&](const RunRow& row) {
    return row.placement.mode == mode && row.placement.devices.size() >= num_devices;
  });
}

Cause shared_hardware(const RunRow& row, std::size_t num_cores) {
  const std::size_t count = num_hardware_units(row, num_cores);
  return {fmt::format("the {} {}{} that the devices share", count,
                      is_on_cores(row) ? "core" : "GPU", count == 1 ? "" : "s"),
          ""};
}

// True if the file has these devices with other batches: it then shows what a larger one gains.
bool has_sizes(const std::vector<RunRow>& rows, const RunRow& row) {
  return std::ranges::any_of(rows, [&](const RunRow& other) {
    return other.placement.mode == row.placement.mode &&
           other.placement.devices.size() == row.placement.devices.size() &&
           other.batch != row.batch;
  });
}

Cause cause_of(const std::vector<RunRow>& rows, std::size_t index, const Part& largest,
               std::size_t num_cores) {
  const RunRow& row = rows[index];
  const RunRow& baseline = baseline_of(rows, index);
  const bool has_advice = !has_sizes(rows, row);
  if (is_oversubscribed(row, num_cores)) return shared_hardware(row, num_cores);
  if (row.contended == true && row.result.acted) {
    return {"the cores here, which could not keep up", "use a larger --slow-motion"};
  }
  if (row.contended == true || baseline.contended == true) {
    return {fmt::format("other processes, which took the {} meanwhile",
                        is_on_cores(row) ? "cores" : "GPU"),
            "repeat it when they are idle"};
  }
  if (row.placement.mode == Mode::pipeline) {
    return {"stages that wait for each other", "more --micro-batches shorten the bubble"};
  }
  const trace::StepBreakdown& step = *row.result.breakdown;
  const bool is_notable = largest.seconds >= kNotable * step.step;
  const double ideal = scaling(row, baseline, num_cores).ideal;
  const double factor = unshared_factor(row, baseline, ideal);
  const double excess = computation(step) * (1 - 1 / factor);
  if (factor >= kNotShared && (!is_notable || excess > largest.seconds)) {
    return {kUnsharedWork,
            fmt::format(
                "each computes {:.1f}x its share of one device's time, since {}small matrix "
                "products are inefficient{}",
                factor,
                shard_depth(row.placement.mode) ? "" : "it repeats the full optimizer update and ",
                has_advice ? "; a larger batch per device helps" : "")};
  }
  if (is_notable) {
    const bool is_copy = largest.seconds == step.copy;
    const bool has_ddp = has_tried(rows, Mode::ddp, row.placement.devices.size());
    if (!has_advice) return {largest.name, ""};
    return {largest.name, is_copy && !has_ddp ? std::string(largest.remedy) + ", and ddp has none"
                                              : largest.remedy};
  }
  // The judged row is the fastest, so rows with more devices were slower or had no hardware.
  const bool has_more = has_tried(rows, row.placement.mode, row.placement.devices.size() + 1);
  if (is_too_efficient(row, baseline, num_cores) || has_more) return {"computation", ""};
  return {
      "computation, as it should be",
      fmt::format("more devices{} would help", is_on_cores(row) ? " with cores of their own" : "")};
}

}  // namespace

bool is_on_cores(const RunRow& row) {
  if (row.result.acted) return false;
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

std::string describe_baseline(const RunRow& baseline) {
  const std::size_t threads = baseline.threads_per_device;
  const std::string what =
      baseline.result.acted ? fmt::format("1 {}, acted out", baseline.result.acted->device)
      : is_on_cores(baseline)
          ? fmt::format("1 device with {} {}", threads, threads == 1 ? "thread" : "threads")
          : "1 GPU";
  return fmt::format("baseline: {}, {}", to_string(baseline.placement.mode), what);
}

StepPart largest_part(const trace::StepBreakdown& step) {
  const Part beside = overheads(step)[0];
  if (computation(step) >= beside.seconds) return {computation(step), "computation"};
  return {beside.seconds, beside.name};
}

std::size_t row_to_explain(const std::vector<RunRow>& rows, std::size_t num_cores) {
  std::size_t found = 0;
  const auto rank = [&](std::size_t i) {
    return std::pair(!is_oversubscribed(rows[i], num_cores), speedup(rows, i, num_cores));
  };
  for (std::size_t i = 1; i < rows.size(); ++i) {
    if (rows[i].placement.devices.size() < 2 || !rows[i].result.breakdown) continue;
    if (found == 0 || rank(i) > rank(found)) found = i;
  }
  return found;
}

std::string bound_limit(const std::vector<RunRow>& rows, std::size_t num_cores) {
  const std::size_t index = rows.empty() ? 0 : row_to_explain(rows, num_cores);
  if (index == 0) return {};
  const Part largest = overheads(*rows[index].result.breakdown)[0];
  return cause_of(rows, index, largest, num_cores).limit;
}

std::string bound_sentence(const std::vector<RunRow>& rows, std::size_t num_cores,
                           const std::string& name) {
  const std::size_t index = rows.empty() ? 0 : row_to_explain(rows, num_cores);
  if (index == 0) return {};
  const RunRow& row = rows[index];
  const trace::StepBreakdown& step = *row.result.breakdown;
  const Part largest = overheads(step)[0];
  const auto percent = [&](double seconds) { return 100 * seconds / step.step; };
  const std::string beside =
      percent(largest.seconds) < 0.5
          ? ""
          : fmt::format(", {:.0f} % {}", percent(largest.seconds), largest.name);
  return fmt::format("{}: {:.0f} % of the step is computation{}: limited by {}.",
                     name.empty() ? name_of(row) : name, percent(computation(step)), beside,
                     cause_of(rows, index, largest, num_cores).text()) +
         too_efficient_note(row, baseline_of(rows, index), num_cores);
}

}  // namespace lockstep::tools
