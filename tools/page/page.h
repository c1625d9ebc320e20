// The report: one HTML file that needs no other. It is page.html with page.css, page.js, Chart.js
// and the runs as JSON inserted; page.js draws them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/page/page_files.h"
#include "tools/page/step_timeline.h"
#include "tools/report/run_reader.h"
#include "tools/training/losses.h"

namespace lockstep::tools::page {

struct PageRun {
  std::string name;  // unique on the page
  RunFile file;
  std::optional<StepTimeline> timeline;
  ThinnedLosses losses;  // from the --log file, if one was named, instead of the run file's
  std::vector<std::string> missing;  // one sentence per figure that cannot be drawn: the reason
};

// Files given on the command line, which replace those that the run file names; empty: none.
struct NamedFiles {
  std::string trace;
  std::string log;
};

// Reads a run file and its timeline. The timeline that the run file names is looked for beside the
// run file and in folders below it, nowhere else. If it is missing or cannot be drawn, `missing`
// says so without quoting that file.
// Throws Error{Io} if the run file or a named file cannot be read.
PageRun load_run(const std::filesystem::path& path, const NamedFiles& named,
                 std::string_view operation);

// The losses in the file of --log, thinned as a run file's are.
// Throws Error{Io} that names file and line: no such file, no line, a line that is no step.
ThinnedLosses read_losses(const std::filesystem::path& path, std::string_view operation);

// Names each run by its file: "out" for build/out.json; by its path if that is not unique.
void name_runs(std::vector<PageRun>& runs);

// Makes the page of one run, or of several side by side. chart_js: the text of Chart.js; the
// build's own is in page_files.h. REQUIRES: at least one run; runs have names.
// Throws Error{State} without Chart.js.
std::string make_page(const std::vector<PageRun>& runs, std::string_view chart_js = kChartJs);

}  // namespace lockstep::tools::page
