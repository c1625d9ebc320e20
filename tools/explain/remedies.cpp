#include "tools/explain/remedies.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tools/report/bound.h"

namespace lockstep::tools {
namespace {

using trace::format_seconds;

// Less of the step is not worth a change.
constexpr double kWorthSaving = 0.02;
constexpr std::size_t kMostRemedies = 3;

struct Remedy {
  double seconds;  // that it could save of a step, at most
  std::string text;
};

double samples_per_second(const FileRow& row) {
  return static_cast<double>(row.batch) / row.step_seconds;
}

const FileRow& fastest(const RunRows& found) {
  return **std::ranges::max_element(found.of_file, {},
                                    [](const FileRow* row) { return samples_per_second(*row); });
}

std::string saving(const FileRow& row, double seconds) {
  return fmt::format("{} of {}: without it {:.2f} times as fast", format_seconds(seconds),
                     format_seconds(row.step_seconds),
                     row.step_seconds / std::max(row.step_seconds - seconds, 1e-12));
}

std::vector<Remedy> remedies_of(const FileRow& row) {
  const trace::StepBreakdown& step = *row.breakdown;
  const bool has_several = row.devices > 1;
  std::vector<Remedy> all{
      {step.exposed_comm,
       fmt::format("Hide communication ({}) behind backward: more rows per device, or smaller "
                   "buckets (--bucket-mib), which start earlier.",
                   saving(row, step.exposed_comm))},
      {step.copy, fmt::format("Use ddp, which copies no model and no gradients to one device ({}).",
                              saving(row, step.copy))},
      {has_several ? step.optimizer : 0,
       fmt::format("Spread the optimizer ({}), which every device runs for all weights, over more "
                   "rows: a larger batch.",
                   saving(row, step.optimizer))},
      {step.data, fmt::format("Make batches faster ({}).", saving(row, step.data))},
      {step.wait, fmt::format("Give the devices equal work and hardware, since they wait for each "
                              "other ({}).",
                              saving(row, step.wait))},
      {step.host + step.unattributed,
       fmt::format("Do more rows per step, since the host's work is the same for any number ({}).",
                   saving(row, step.host + step.unattributed))}};
  std::erase_if(all, [&](const Remedy& r) { return r.seconds < kWorthSaving * row.step_seconds; });
  std::ranges::stable_sort(all, std::greater<>(), &Remedy::seconds);
  if (all.size() > kMostRemedies) all.resize(kMostRemedies);
  return all;
}

std::string fastest_text(const RunRows& found) {
  const FileRow& best = fastest(found);
  std::string text = fmt::format("Fastest in this file: {} with batch {}, {:.0f} rows a second",
                                 name_of(best), best.batch, samples_per_second(best));
  if (best.speedup && best.mode != "single") text += fmt::format(", {:.2f}x", *best.speedup);
  return text + ".";
}

}  // namespace

std::string remedies_text(const RunRows& found, std::size_t index, const SharedHardware& hardware) {
  const FileRow& row = *found.of_file[index];
  std::string text = fastest_text(found);
  if (!row.breakdown) return text;
  if (row.devices > 1 && is_oversubscribed(found.rows[index], hardware.num_cores)) {
    const std::size_t num_units = hardware.is_cpu ? hardware.num_cores : row.physical_devices;
    return text + fmt::format(
                      " Take no more than {} devices here, one for each {}; what else the "
                      "step holds cannot be judged while they take turns.",
                      num_units, hardware.is_cpu ? "core" : "GPU");
  }
  const std::vector<Remedy> remedies = remedies_of(row);
  for (const Remedy& remedy : remedies) text += " " + remedy.text;
  if (remedies.empty()) {
    const double computation =
        row.breakdown->forward + row.breakdown->backward + row.breakdown->optimizer;
    text += fmt::format(
        " {:.0f} % of the step is computation already: faster devices or lower "
        "precision would help, or more devices with a larger batch.",
        100 * computation / row.step_seconds);
  }
  return text;
}

}  // namespace lockstep::tools
