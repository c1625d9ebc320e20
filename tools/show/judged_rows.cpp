#include "tools/show/judged_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "tools/text/format.h"

namespace lockstep::tools {

Rows rows_of_kind(const RunFile& file, std::string_view kind, Changes changes) {
  Rows found;
  for (const RunRow& row : file.rows) {
    if (row.kind != kind || (changes == Changes::without && !row.what_if.empty())) continue;
    found.push_back(&row);
  }
  return found;
}

namespace {

// A smaller difference in speed is not worth a change.
constexpr double kWorthSaving = 0.02;

// Rows trained per second over whole epochs. If the speed-up is known it is used, because it
// compares epochs.
double epoch_rate(const Rows& found, std::size_t index) {
  const RunRow& row = *found[index];
  return row.speedup ? *row.speedup * found[baseline_of(found, index)]->samples_per_second()
                     : row.samples_per_second();
}

// Half the range of the row's epoch times, as a share of them; the first epoch is warm-up. If there
// are too few epochs to tell, 0, or kDisturbed if another process was at work.
double noise_of(const RunRow& row) {
  constexpr double kDisturbed = 0.2;
  if (row.result.epoch_seconds.size() < 3) return row.contended == true ? kDisturbed : 0;
  const auto [least, most] = std::ranges::minmax(
      std::ranges::subrange(row.result.epoch_seconds.begin() + 1, row.result.epoch_seconds.end()));
  return most > 0 ? (most - least) / (most + least) : 0;
}

// By how much of its rate one row must be faster than the other to be called faster.
double margin(const Rows& found, std::size_t a, std::size_t b) {
  return std::min(0.5, kWorthSaving + noise_of(*found[a]) + noise_of(*found[b]));
}

// True if a beats b by more than noise and by enough to be worth a change.
bool beats(const Rows& found, std::size_t a, std::size_t b) {
  return (1 - margin(found, a, b)) * epoch_rate(found, a) > epoch_rate(found, b);
}

// The first row that no other row beats; so single comes before a dp of one device.
std::size_t fastest(const Rows& found) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < found.size(); ++i) {
    if (beats(found, i, best)) best = i;
  }
  return best;
}

// " dp x4 is as fast within the noise of 7 %."
std::string equals_text(const Rows& all, std::size_t best) {
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

}  // namespace

std::string fastest_text(const Rows& all) {
  const std::size_t index = fastest(all);
  const RunRow& best = *all[index];
  std::string text =
      fmt::format("Fastest in this file: {} with batch {}", name_of(best), best.batch);
  if (best.speedup && !best.is_single()) text += fmt::format(", {:.2f}x", *best.speedup);
  return text +
         fmt::format(", {:.0f} rows a second in its median step.", best.samples_per_second()) +
         equals_text(all, index);
}

std::string changes_text(const Rows& all, const RunRow& row) {
  std::string text;
  for (const RunRow* other : all) {
    if (other->mode != row.mode || other->devices != row.devices || other->what_if == row.what_if) {
      continue;
    }
    const double factor = other->samples_per_second() / row.samples_per_second();
    text += fmt::format(
        "{}{}: a step of {} x{} with batch {} takes {} instead of {}{}, {:.2f} times the rows a "
        "second.",
        text.empty() ? "" : " ", other->what_if.empty() ? "unchanged" : other->what_if, row.mode,
        row.devices, other->batch, trace::format_seconds(other->step_seconds),
        trace::format_seconds(row.step_seconds),
        other->batch == row.batch ? "" : fmt::format(" with batch {}", row.batch), factor);
  }
  return text;
}

}  // namespace lockstep::tools
