#include "tools/prediction/speedup_sentence.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/trace/breakdown.h"

namespace lockstep::tools {
namespace {

std::string times(double speedup) {
  return fmt::format("{:.{}f}x", speedup, speedup < 1 ? 2 : 1);
}

double compute_seconds(const trace::StepBreakdown& step) {
  return step.forward + step.backward + step.optimizer + step.host;
}

std::string limit(const PredictedRow& single, const PredictedRow& row) {
  const trace::StepBreakdown& step = row.step.breakdown;
  const double slower = compute_seconds(step) - compute_seconds(single.step.breakdown);
  const std::vector<std::pair<double, std::string>> losses = {
      {step.exposed_comm + step.copy, "communication that computation does not hide"},
      {step.wait, fmt::format("waiting for the slowest of {} GPUs", row.devices)},
      {slower, "computation that slows down beside communication"}};
  const auto& [seconds, name] =
      *std::ranges::max_element(losses, {}, [](const auto& loss) { return loss.first; });
  return fmt::format("{} ({} of the {} step on {} GPUs)", name, trace::format_seconds(seconds),
                     trace::format_seconds(row.step.step_seconds), row.devices);
}

}  // namespace

std::string speedup_sentence(std::span<const PredictedRow> rows) {
  const PredictedRow& single = rows.front();
  const std::size_t batch = single.batch;
  if (rows.size() == 1) {
    return fmt::format("1 GPU: {:.4g} samples a second with {} samples a step",
                       static_cast<double>(batch) / single.step.step_seconds, batch);
  }
  std::string text;
  for (const PredictedRow& row : rows.subspan(1)) {
    const auto [low, high] = row.speedup_band.value();
    text += fmt::format("{}{} GPUs: {} (band {} to {})", text.empty() ? "" : ", ", row.devices,
                        times(row.speedup), times(low), times(high));
  }
  const PredictedRow& largest = *std::ranges::max_element(rows, {}, &PredictedRow::devices);
  return fmt::format(
      "{} the samples per second of one GPU, with {} samples a step on each (weak scaling); "
      "limited "
      "by {}",
      text, batch, limit(single, largest));
}

}  // namespace lockstep::tools
