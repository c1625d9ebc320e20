#include "tools/page/page_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "tools/page/loss_log.h"
#include "tools/page/run_charts.h"
#include "tools/report/predicted_trace.h"

namespace lockstep::tools::page {
namespace {

// Beside the run file or, where the recorded path says, in a folder below it. A run file comes from
// anywhere: what it names elsewhere is not opened.
std::filesystem::path find_beside(const std::filesystem::path& run, const std::string& recorded) {
  namespace fs = std::filesystem;
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

// Reads by `read` the file that was named, or the one that the run's flag recorded. what: "timeline
// of a step"; how: why there is none where no file was recorded.
template <typename Read>
void load(PageRun& run, const std::string& named, const char* flag, const char* what,
          const char* how, const Read& read) {
  const std::string option = fmt::format("--{}-file", flag);
  if (!named.empty()) return read(named);
  const std::string recorded = run.file.config_value(flag);
  if (recorded.empty()) {
    run.missing.push_back(fmt::format("No {}: {}.", what, how));
    return;
  }
  const std::filesystem::path found = find_beside(run.file.path, recorded);
  if (found.empty()) {
    run.missing.push_back(
        fmt::format("No {}: the run wrote {}, which is not beside the run file; {} names one.",
                    what, shown(recorded), option));
    return;
  }
  try {
    read(found);
  } catch (const Error&) {
    // Not the error's words, which may quote the file: nobody has said that this page may.
    run.missing.push_back(
        fmt::format("No {}: {} beside the run file is none that can be drawn; {} {} says why.",
                    what, shown(found.filename().string()), option, shown(found.string())));
  }
}

// --trace writes the last row's step; of a prediction no more than eight devices.
std::string row_of_timeline(const RunFile& file, const StepTimeline& timeline) {
  // compare --predict has predicted rows behind those that it ran.
  const auto found = std::find_if(file.rows.rbegin(), file.rows.rend(), [&](const FileRow& row) {
    return (row.kind == "predicted") == timeline.is_predicted;
  });
  if (found == file.rows.rend()) return {};
  const FileRow& last = *found;
  const std::size_t drawn =
      timeline.is_predicted ? std::min(last.devices, kMostPredictedDevices) : last.devices;
  if (timeline.ranks.size() != drawn) return {};
  return bar_label(file, last);
}

}  // namespace

PageRun load_run(const std::filesystem::path& path, const NamedFiles& named,
                 std::string_view operation) {
  PageRun run;
  run.file = read_run_file(path, operation);
  const bool is_predicted = std::ranges::all_of(
      run.file.rows, [](const FileRow& row) { return row.kind == "predicted"; });
  load(run, named.trace, "trace", "timeline of a step",
       is_predicted ? "the run file names none, as lockstep predict --trace writes it; "
                      "--trace-file names one"
                    : "the run was made without --trace",
       [&](const std::filesystem::path& file) {
         run.timeline = read_step_timeline(file, operation);
         run.timeline->row = row_of_timeline(run.file, *run.timeline);
       });
  const bool has_log = run.file.config_value("parallel") != "";  // train's, which alone has --log
  if (is_predicted && named.log.empty()) return run;             // a prediction trains nothing
  load(run, named.log, "log", "loss curve",
       has_log
           ? "the run was made without --log"
           : "compare records the loss at the end only; lockstep train --log records every step",
       [&](const std::filesystem::path& file) { run.losses = read_losses(file, operation); });
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
