// The report: one HTML file that needs nothing else. It is page.html with page.css, page.js,
// Chart.js and the runs as JSON put in; page.js draws them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/page/page_files.h"
#include "tools/page/step_timeline.h"
#include "tools/report/run_reader.h"

namespace lockstep::tools::page {

struct PageRun {
  std::string name;  // unique on the page
  RunFile file;
  std::optional<StepTimeline> timeline;
  ThinnedLosses losses;              // of a log that was named, instead of the run file's
  std::vector<std::string> missing;  // why a figure cannot be drawn, a sentence each
};

// Files that were named, instead of those that the run file names; empty: none.
struct NamedFiles {
  std::string trace;
  std::string log;
};

// Reads a run file, and its timeline: the one that the run file names is looked for beside it and
// in folders below, nowhere else; what is not found, or cannot be drawn, is in `missing`, which
// quotes nothing of such a file.
// Throws Error{Io} for the run file, and for files that were named.
PageRun load_run(const std::filesystem::path& path, const NamedFiles& named,
                 std::string_view operation);

// The losses in the file of --log, thinned as a run file's are.
// Throws Error{Io} that names file and line: no such file, no line, a line that is no step.
ThinnedLosses read_losses(const std::filesystem::path& path, std::string_view operation);

// Names each run by its file: "out" for build/out.json, and where that is not unique by its path.
void name_runs(std::vector<PageRun>& runs);

// One run, or several side by side. chart_js: Chart.js; what this program was built with is in
// page_files.h. REQUIRES: runs have names, at least one.
// Throws Error{State} without Chart.js.
std::string make_page(const std::vector<PageRun>& runs, std::string_view chart_js = kChartJs);

}  // namespace lockstep::tools::page
