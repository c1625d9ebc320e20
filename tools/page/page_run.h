// A run of the page: its run file, and what lies beside it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tools/page/line_chart.h"
#include "tools/page/step_timeline.h"
#include "tools/report/run_reader.h"

namespace lockstep::tools::page {

struct PageRun {
  std::string name;  // unique on the page
  RunFile file;
  std::optional<StepTimeline> timeline;
  std::vector<Point> losses;
  std::vector<std::string> missing;  // why a figure cannot be drawn, a sentence each
};

// Files that were named, instead of those that the run file names; empty: none.
struct NamedFiles {
  std::string trace;
  std::string log;
};

// Reads a run file, the timeline and the log. Those that the run file names are looked for beside
// it and in folders below, nowhere else; what is not found, or cannot be drawn, is in `missing`,
// which quotes nothing of such a file.
// Throws Error{Io} for the run file, and for files that were named.
PageRun load_run(const std::filesystem::path& path, const NamedFiles& named,
                 std::string_view operation);

// Names each run by its file: "out" for build/out.json, and where that is not unique by its path.
void name_runs(std::vector<PageRun>& runs);

}  // namespace lockstep::tools::page
