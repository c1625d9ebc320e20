#include "tools/explain/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <string_view>
#include <vector>

#include "tools/report/bound.h"

namespace lockstep::tools {
namespace {

using trace::format_seconds;

// A smaller share of the step is not worth a change.
constexpr double kWorthSaving = 0.02;
constexpr std::size_t kMostRemedies = 3;

struct Remedy {
  double seconds;  // the most that it could save of a step
  std::string text;
};

// Rows trained per second over whole epochs. If the speed-up is known it is used, because it
// compares epochs.
double epoch_rate(const RunRows& found, std::size_t index) {
  const FileRow& row = *found.of_file[index];
  const RunRow& base = baseline_of(found.rows, index);
  const FileRow& baseline = *found.of_file[static_cast<std::size_t>(&base - found.rows.data())];
  return row.speedup ? *row.speedup * baseline.samples_per_second() : row.samples_per_second();
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
double margin(const RunRows& found, std::size_t a, std::size_t b) {
  return std::min(0.5, kWorthSaving + noise_of(*found.of_file[a]) + noise_of(*found.of_file[b]));
}

// True if a beats b by more than noise and by enough to be worth a change.
bool beats(const RunRows& found, std::size_t a, std::size_t b) {
  return (1 - margin(found, a, b)) * epoch_rate(found, a) > epoch_rate(found, b);
}

// The first row that no other row beats; so single comes before a dp of one device.
std::size_t fastest(const RunRows& found) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < found.rows.size(); ++i) {
    if (beats(found, i, best)) best = i;
  }
  return best;
}

// True if the file has this mode on as many devices (on_more: on more), and it is no faster than
// row.
bool has_failed(const RunRows& all, const FileRow& row, std::string_view mode, bool on_more) {
  return std::ranges::any_of(all.of_file, [&](const FileRow* other) {
    const bool has_devices = on_more ? other->devices > row.devices : other->devices == row.devices;
    return other->mode == mode && has_devices && other->what_if == row.what_if &&
           other->samples_per_second() <= (1 + kWorthSaving) * row.samples_per_second();
  });
}

// True if the file has the row with larger batches, and none of them is more efficient.
bool has_batch_failed(const RunRows& all, const FileRow& row) {
  std::size_t num_larger = 0, num_better = 0;
  for (const FileRow* other : all.of_file) {
    const bool is_size = other->mode == row.mode && other->devices == row.devices &&
                         (other->what_if == row.what_if || is_changed_in(*other, row, "batch"));
    if (!is_size || other->batch <= row.batch || !other->efficiency || !row.efficiency) continue;
    ++num_larger;
    num_better += *other->efficiency > *row.efficiency;
  }
  return num_larger > 0 && num_better == 0;
}

// Says what smaller buckets would do, as far as the file can tell.
std::string bucket_text(const RunRows& all, const FileRow& row) {
  constexpr double kNotable = 0.02;
  const FileRow* best = nullptr;
  for (const FileRow* other : all.of_file) {
    if (!is_changed_in(*other, row, "bucket_mib") || other->batch != row.batch) continue;
    if (best == nullptr || other->step_seconds < best->step_seconds) best = other;
  }
  if (best == nullptr) return "smaller buckets (--bucket-mib), which start earlier";
  if (best->step_seconds > (1 - kNotable) * row.step_seconds) return {};
  return fmt::format("{}, with which a step takes {}", best->what_if,
                     format_seconds(best->step_seconds));
}

std::string hiding_text(const RunRows& all, const FileRow& row, bool batch_helps) {
  const std::string buckets = bucket_text(all, row);
  if (batch_helps) {
    return "more rows per device" + (buckets.empty()
                                         ? ", since other buckets gain nothing in this file"
                                         : ", or " + buckets);
  }
  return buckets.empty()
             ? "neither more rows per device nor other buckets gain anything in this file"
             : buckets;
}

std::string saving(const FileRow& row, double seconds) {
  return fmt::format("{} of {}: without it {:.2f} times as fast", format_seconds(seconds),
                     format_seconds(row.step_seconds),
                     row.step_seconds / std::max(row.step_seconds - seconds, 1e-12));
}

std::vector<Remedy> remedies_of(const RunRows& all, const FileRow& row) {
  const bool batch_helps = !has_batch_failed(all, row);
  const trace::StepBreakdown& step = *row.breakdown;
  const bool has_several = row.devices > 1;
  std::vector<Remedy> remedies{
      {step.exposed_comm,
       fmt::format("Hide communication ({}) behind backward: {}.", saving(row, step.exposed_comm),
                   hiding_text(all, row, batch_helps))},
      {has_failed(all, row, "ddp", false) ? 0 : step.copy,
       fmt::format("Use ddp, which copies neither the model nor the gradients via one device ({}).",
                   saving(row, step.copy))},
      {has_several && batch_helps ? step.optimizer : 0,
       fmt::format("Use a larger batch, which spreads the optimizer ({}) over more rows: every "
                   "device updates all its weights.",
                   saving(row, step.optimizer))},
      {step.data, fmt::format("Make batches faster ({}).", saving(row, step.data))},
      {step.wait, fmt::format("Give the devices equal work and hardware, since they wait for each "
                              "other ({}).",
                              saving(row, step.wait))},
      {batch_helps ? step.host + step.unattributed : 0,
       fmt::format("Use more rows per step: the host's work ({}) is the same for any number.",
                   saving(row, step.host + step.unattributed))}};
  std::erase_if(remedies,
                [&](const Remedy& r) { return r.seconds < kWorthSaving * row.step_seconds; });
  std::ranges::stable_sort(remedies, std::greater<>(), &Remedy::seconds);
  if (remedies.size() > kMostRemedies) remedies.resize(kMostRemedies);
  return remedies;
}

// " dp x4 is as fast within the noise of 7 %."
std::string equals_text(const RunRows& all, std::size_t best) {
  std::string names;
  double widest = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < all.rows.size(); ++i) {
    if (i == best || beats(all, best, i)) continue;
    names += (count++ == 0 ? " " : ", ") + name_of(*all.of_file[i]);
    widest = std::max(widest, margin(all, i, best));
  }
  if (count == 0) return {};
  return fmt::format("{} {} as fast within the noise of {:.0f} %.", names,
                     count == 1 ? "is" : "are", 100 * widest);
}

std::string fastest_text(const RunRows& all) {
  const std::size_t index = fastest(all);
  const FileRow& best = *all.of_file[index];
  std::string text =
      fmt::format("Fastest in this file: {} with batch {}", name_of(best), best.batch);
  if (best.speedup && best.mode != "single") text += fmt::format(", {:.2f}x", *best.speedup);
  return text +
         fmt::format(", {:.0f} rows a second in its median step.", best.samples_per_second()) +
         equals_text(all, index);
}

}  // namespace

std::string remedies_text(const RunRows& found, const RunRows& all, std::size_t index,
                          const SharedHardware& hardware) {
  const FileRow& row = *found.of_file[index];
  std::string text = fastest_text(all);
  if (!row.breakdown) return text;
  if (row.devices > 1 && is_oversubscribed(found.rows[index], hardware.num_cores)) {
    const std::size_t num_units = hardware.is_cpu ? hardware.num_cores : row.physical_devices;
    if (all.of_file[fastest(all)]->devices > num_units) {
      return text + " The rest of the step cannot be judged while devices share the hardware.";
    }
    return text + fmt::format(
                      " Use at most {} device{} here, one for each {}; the rest of the step "
                      "cannot be judged while they share the hardware.",
                      num_units, num_units == 1 ? "" : "s", hardware.is_cpu ? "core" : "GPU");
  }
  const std::vector<Remedy> remedies = remedies_of(all, row);
  for (const Remedy& remedy : remedies) text += " " + remedy.text;
  if (remedies.empty()) {
    const double computation =
        row.breakdown->forward + row.breakdown->backward + row.breakdown->optimizer;
    text += fmt::format(
        " {:.0f} % of the step is computation already: faster devices or lower precision would "
        "help{}.",
        100 * computation / row.step_seconds,
        has_failed(all, row, row.mode, true) ? "" : ", or more devices with a larger batch");
  }
  return text;
}

}  // namespace lockstep::tools
