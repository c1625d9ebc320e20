// Replicas must exchange their gradients; ranks that never do train models of their own.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tools/doctor/judges.h"

namespace lockstep::doctor {
namespace {

// The rows of a rank until one is repeated.
std::set<std::uint64_t> first_rows(const Trainer& trainer) {
  std::set<std::uint64_t> rows;
  for (const StepRecord* step : trainer.steps) {
    for (const auto& [pass, losses] : step->passes) {
      for (const LossRecord& loss : losses) {
        for (const std::uint64_t row : loss.hashes) {
          if (!rows.insert(row).second) return rows;
        }
      }
    }
  }
  return rows;
}

// Ranks that share a data set train one model; others may train models of their own, as in
// cross-validation.
bool share_rows(const Training& training) {
  const std::set<std::uint64_t> first = first_rows(*training.ranks[0]);
  for (const Trainer* trainer : training.ranks) {
    if (trainer == training.ranks[0]) continue;
    const std::set<std::uint64_t> other = first_rows(*trainer);
    const auto num_common =
        std::ranges::count_if(other, [&](std::uint64_t row) { return first.contains(row); });
    if (other.size() < 8 || 20 * static_cast<std::size_t>(num_common) > other.size()) return false;
  }
  return true;
}

}  // namespace

std::optional<Finding> judge_silence(const Training& training) {
  if (!share_rows(training)) return {};
  const StepRecord& zero = training.step(0, 0);
  for (std::size_t rank = 1; rank < training.world_size(); ++rank) {
    const StepRecord& other = training.step(rank, 0);
    const bool begins_alike = std::ranges::equal(
        zero.parameters, other.parameters, {}, &ParameterRecord::before, &ParameterRecord::before);
    if (!begins_alike || zero.after == other.after) continue;
    return Finding{
        "exchanged-gradients",
        fmt::format("{} ranks begin with the same weights and make {} steps of their own: no "
                    "communication ever moves a gradient or a weight, and after step {} rank {} "
                    "differs from rank 0",
                    training.world_size(), training.num_steps(), zero.step, rank),
        "replicas exchange their gradients in every step, else they are independent models",
        "an average over parameters that finds none, a wrapper that is not called, or ranks that "
        "were never connected"};
  }
  return {};
}

}  // namespace lockstep::doctor
