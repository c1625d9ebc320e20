#include "tools/record/contention.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::tools {

std::string contention_mark(const RunRow& row) {
  if (!row.contended) return "?";
  return *row.contended ? "*" : "";
}

std::vector<std::string> contention_notes(const std::vector<RunRow>& rows) {
  const auto any = [&](std::optional<bool> verdict) {
    return std::any_of(rows.begin(), rows.end(),
                       [&](const RunRow& row) { return row.contended == verdict; });
  };
  const bool is_cpu = rows.empty() || rows[0].is_on_cores;
  double lag = 0;
  for (const RunRow& row : rows) {
    if (row.result.simulated) lag = std::max(lag, row.result.simulated->lag);
  }
  std::vector<std::string> notes;
  if (lag > kNotableLag) {
    notes.push_back(
        fmt::format("* the cores here could not keep up for {:.0f} % of a step, so times are too "
                    "long; use a larger --slow-motion",
                    100 * lag));
  } else if (any(true)) {
    notes.push_back(
        is_cpu ? "* contended: another process used the cores meanwhile, so times may be too long"
               : "* contended: another process used the GPU meanwhile, so times may be too long; "
                 "lockstep devices shows who, and with --free 1 an idle GPU");
  }
  if (any(std::nullopt)) {
    notes.push_back(
        fmt::format("? contended: {} does not say whether another process used the {} "
                    "meanwhile",
                    is_cpu ? "/proc/stat" : "nvidia-smi", is_cpu ? "cores" : "GPU"));
  }
  return notes;
}

}  // namespace lockstep::tools
