// The report: one HTML file that needs no other. It is page.html with page.css, page.js, Chart.js
// and the runs as JSON inserted; page.js draws them.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tools/record/run_reader.h"
#include "tools/show/page_files.h"

namespace lockstep::tools::page {

struct PageRun {
  std::string name;
  RunFile file;
  nlohmann::ordered_json timeline;   // step_timeline.h, and the name of its "row"; or null
  std::vector<std::string> missing;  // one sentence per figure that cannot be drawn: the reason
};

// Reads a run file and its timeline: the file `trace`, or if that is empty, the one that the run
// file names, if it is beside it. If that is missing or cannot be drawn, `missing` says so without
// quoting that file.
// Throws Error{Io} if the run file or `trace` cannot be read.
PageRun load_run(const std::filesystem::path& path, const std::string& trace,
                 std::string_view operation);

// Names each run by its file: "out" for build/out.json; by its path if others have that name.
void name_runs(std::vector<PageRun>& runs);

// Makes the page of one run, or of several side by side. chart_js: the text of Chart.js; the
// build's own is in page_files.h. REQUIRES: at least one run; runs have names.
// Throws Error{State} without Chart.js.
std::string make_page(const std::vector<PageRun>& runs, std::string_view chart_js = kChartJs);

}  // namespace lockstep::tools::page
