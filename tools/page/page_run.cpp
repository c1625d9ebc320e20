#include "tools/page/page_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "engine/core/error.h"
#include "tools/page/loss_log.h"

namespace lockstep::tools::page {
namespace {

// Beside the run file, else where the run file says, which was relative to the folder of the run.
std::filesystem::path find_beside(const std::filesystem::path& run, const std::string& recorded) {
  const std::filesystem::path as_said(recorded);
  const std::filesystem::path beside = run.parent_path() / as_said.filename();
  std::error_code ignored;
  if (std::filesystem::is_regular_file(beside, ignored)) return beside;
  if (std::filesystem::is_regular_file(as_said, ignored)) return as_said;
  return {};
}

// Reads by `read` the file that was named, or the one that the run's flag recorded. what: "timeline
// of a step"; how: what would make one.
template <typename Read>
void load(PageRun& run, const std::string& named, const char* flag, const char* what,
          const char* how, const Read& read) {
  if (!named.empty()) return read(named);
  const std::string recorded = run.file.config_value(flag);
  if (recorded.empty()) {
    run.missing.push_back(fmt::format("No {}: {}.", what, how));
    return;
  }
  const std::filesystem::path found = find_beside(run.file.path, recorded);
  if (found.empty()) {
    run.missing.push_back(
        fmt::format("No {}: the run wrote {}, which is neither beside the run file nor there.",
                    what, recorded));
    return;
  }
  try {
    read(found);
  } catch (const Error& error) {
    run.missing.push_back(fmt::format("No {}: {}.", what, error.message()));
  }
}

}  // namespace

PageRun load_run(const std::filesystem::path& path, const NamedFiles& named,
                 std::string_view operation) {
  PageRun run;
  run.file = read_run_file(path, operation);
  load(run, named.trace, "trace", "timeline of a step", "the run was made without --trace",
       [&](const std::filesystem::path& file) {
         run.timeline = read_step_timeline(file, operation);
       });
  const bool has_log = run.file.config_value("parallel") != "";  // train's, which alone has --log
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
