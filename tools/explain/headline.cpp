#include "tools/explain/headline.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/explain/explain.h"
#include "tools/explain/run_rows.h"
#include "tools/report/bound.h"
#include "tools/report/row_table.h"

namespace lockstep::tools {
namespace {

// "8 GPUs", "2 CPU devices", "One simulated GPU".
std::string devices_text(const RunFile& file, const FileRow& row) {
  const bool is_cpu = row.kind == "measured" && file.config_value("device") != "cuda";
  const std::string noun =
      std::string(row.kind == "acted" ? "simulated " : "") + (is_cpu ? "CPU device"
                                                              : row.kind == "predicted" ? "device"
                                                                                        : "GPU");
  return row.devices == 1 ? "One " + noun : fmt::format("{} {}s", row.devices, noun);
}

// "61 % of it is computation": of the largest part.
std::string largest_part(const FileRow& row) {
  const trace::StepBreakdown& step = *row.breakdown;
  const std::pair<double, const char*> parts[] = {
      {step.forward + step.backward + step.optimizer, "computation"},
      {step.exposed_comm, "communication"},
      {step.wait, "waiting"},
      {step.copy, "copying"},
      {step.data, "waiting for data"},
      {step.host + step.unattributed, "work of the host"}};
  const auto& [seconds, name] = *std::ranges::max_element(parts);
  return fmt::format("{:.0f} % of it is {}", 100 * seconds / row.step_seconds, name);
}

// "; predicted: 3.51x" where the file predicts what was simulated.
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
  const FileRow& row = judged_row(file);
  const std::string devices = devices_text(file, row) + where_text(row);
  const RunRows rows = rows_of_kind(file, row.kind, Changes::without);
  const std::string limit = bound_limit(rows.rows, file.host.cores);
  const std::string limited = limit.empty() ? "" : "; limited by " + limit;
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
  if (row.breakdown) text += "; " + largest_part(row);
  return text + limited + ".";
}

}  // namespace lockstep::tools
