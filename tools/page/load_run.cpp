#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "engine/core/text.h"
#include "tools/page/page.h"
#include "tools/report/trace_file.h"

namespace lockstep::tools::page {
namespace {

namespace fs = std::filesystem;

// Beside the run file or, where the recorded path says, in a folder below it. A run file comes from
// anywhere: what it names elsewhere is not opened.
fs::path find_beside(const fs::path& run, const std::string& recorded) {
  std::error_code ignored;
  const fs::path folder = fs::weakly_canonical(run, ignored).parent_path();
  const fs::path as_said(recorded);
  for (const fs::path& path : {folder / as_said.filename(), folder / as_said}) {
    const fs::path real = fs::weakly_canonical(path, ignored);
    const auto ends = std::ranges::mismatch(folder, real);
    if (ends.in1 == folder.end() && fs::is_regular_file(real, ignored)) return path;
  }
  return {};
}

bool is_predicted(const RunFile& file) {
  return std::ranges::all_of(file.rows, [](const FileRow& row) { return row.kind == "predicted"; });
}

// --trace writes the last row's step; of a prediction no more than eight devices.
std::string row_of_timeline(const RunFile& file, const StepTimeline& timeline) {
  // compare --predict has predicted rows behind those that it ran.
  const auto found = std::find_if(file.rows.rbegin(), file.rows.rend(), [&](const FileRow& row) {
    return (row.kind == "predicted") == timeline.is_predicted;
  });
  if (found == file.rows.rend()) return {};
  const std::size_t drawn =
      timeline.is_predicted ? std::min(found->devices, kMostPredictedDevices) : found->devices;
  return timeline.ranks.size() == drawn ? name_of(*found) : "";
}

void load_timeline(PageRun& run, const fs::path& path, std::string_view operation) {
  run.timeline = read_step_timeline(path, operation);
  run.timeline->row = row_of_timeline(run.file, *run.timeline);
}

// The one beside the run file; else says why there is none.
void find_timeline(PageRun& run, std::string_view operation) {
  const std::string recorded = run.file.config_value("trace");
  if (recorded.empty()) {
    run.missing.push_back(
        is_predicted(run.file)
            ? "No timeline of a step: the run file names none, as lockstep predict --trace writes "
              "it; --trace-file names one."
            : "No timeline of a step: the run was made without --trace.");
    return;
  }
  const fs::path found = find_beside(run.file.path, recorded);
  if (found.empty()) {
    run.missing.push_back(
        fmt::format("No timeline of a step: the run wrote {}, which is not beside the run file; "
                    "--trace-file names one.",
                    shown(recorded)));
    return;
  }
  try {
    load_timeline(run, found, operation);
  } catch (const Error&) {
    // Not the error's words, which may quote the file: nobody has said that this page may.
    run.missing.push_back(
        fmt::format("No timeline of a step: {} beside the run file is none that can be drawn; "
                    "--trace-file {} says why.",
                    shown(found.filename().string()), shown(found.string())));
  }
}

}  // namespace

ThinnedLosses read_losses(const fs::path& path, std::string_view operation) {
  std::istringstream lines(read_text_file(path, operation));
  std::vector<StepLoss> losses;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    const bool is_step = json.is_object() && json.contains("step") && json["step"].is_number() &&
                         json.contains("loss") && json["loss"].is_number() &&
                         std::abs(json["loss"].get<double>()) < 1e30;
    require(is_step, ErrorCode::Io, operation,
            "'{}', line {}: expected a step with its loss, as `lockstep train --log` writes it, "
            "found {}",
            shown(path.string()), losses.size() + 1, shown(line));
    losses.push_back({losses.size(), 1, json["loss"]});
  }
  require(!losses.empty(), ErrorCode::Io, operation, "'{}' holds no step", shown(path.string()));
  LossCurve curve(losses.size());
  for (const StepLoss& loss : losses) curve.add(loss);
  return curve.means(curve.sums_and_rows());
}

PageRun load_run(const fs::path& path, const NamedFiles& named, std::string_view operation) {
  PageRun run;
  run.file = read_run_file(path, operation);
  if (named.trace.empty()) {
    find_timeline(run, operation);
  } else {
    load_timeline(run, named.trace, operation);
  }
  if (!named.log.empty()) run.losses = read_losses(named.log, operation);
  return run;
}

void name_runs(std::vector<PageRun>& runs) {
  std::multiset<std::string> stems;
  for (const PageRun& run : runs) stems.insert(run.file.path.stem().string());
  std::multiset<std::string> names;
  for (PageRun& run : runs) {
    const std::string stem = run.file.path.stem().string();
    run.name = stems.count(stem) == 1 ? stem : run.file.path.string();
    names.insert(run.name);
    if (names.count(run.name) > 1) run.name += fmt::format(" ({})", names.count(run.name));
  }
}

}  // namespace lockstep::tools::page
