#include "tools/show/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "tools/run/trace_file.h"
#include "tools/show/explain.h"
#include "tools/show/step_timeline.h"
#include "tools/text/html.h"

namespace lockstep::tools::page {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// The file of the recorded name beside the run file. A run file may come from anywhere, so nothing
// else that it names is opened.
fs::path find_beside(const fs::path& run, const std::string& recorded) {
  std::error_code ignored;
  const fs::path path = run.parent_path() / fs::path(recorded).filename();
  return fs::is_regular_file(fs::symlink_status(path, ignored)) ? path : fs::path();
}

// The row whose step the timeline shows, such as "ddp x4"; empty if none fits. --trace writes the
// last row's step; a prediction's timeline has at most eight devices.
std::string row_of_timeline(const RunFile& file, const Json& timeline) {
  // compare --predict puts predicted rows after those that it ran.
  const bool is_predicted = timeline["predicted"];
  const auto found = std::find_if(file.rows.rbegin(), file.rows.rend(), [&](const RunRow& row) {
    return (row.kind == "predicted") == is_predicted;
  });
  if (found == file.rows.rend()) return {};
  const std::size_t drawn =
      is_predicted ? std::min(found->devices, kMostPredictedDevices) : found->devices;
  return timeline["ranks"].size() == drawn ? name_of(*found) : "";
}

void load_timeline(PageRun& run, const fs::path& path, std::string_view operation) {
  run.timeline = read_step_timeline(path, operation);
  run.timeline["row"] = row_of_timeline(run.file, run.timeline);
}

// Loads the timeline beside the run file, or adds a sentence that says why there is none.
void find_timeline(PageRun& run, std::string_view operation) {
  const std::string recorded = run.file.config_value("trace");
  const fs::path found = recorded.empty() ? fs::path() : find_beside(run.file.path, recorded);
  std::string why = "the run was made without --trace.";
  if (!recorded.empty()) {
    why = fmt::format("the run wrote {}, which is not beside the run file; --trace-file names one.",
                      shown(recorded));
  }
  if (!found.empty()) {
    try {
      return load_timeline(run, found, operation);
    } catch (const Error&) {
      // The error's own words may quote the file, and the user has not asked for that on this page.
      why = fmt::format("{} beside the run file cannot be drawn; --trace-file {} says why.",
                        shown(found.filename().string()), shown(found.string()));
    }
  }
  run.missing.push_back("No timeline of a step: " + why);
}

}  // namespace

PageRun load_run(const fs::path& path, const std::string& trace, std::string_view operation) {
  PageRun run;
  run.file = read_run_file(path, operation);
  if (trace.empty()) {
    find_timeline(run, operation);
  } else {
    load_timeline(run, trace, operation);
  }
  return run;
}

void name_runs(std::vector<PageRun>& runs) {
  std::multiset<std::string> stems;
  for (const PageRun& run : runs) stems.insert(run.file.path.stem().string());
  for (PageRun& run : runs) {
    const std::string stem = run.file.path.stem().string();
    run.name = stems.count(stem) == 1 ? stem : run.file.path.string();
  }
}

namespace {

// Quotes the words so that a shell reads them back unchanged.
std::string shell_line(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,+";
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    const bool is_plain = !word.empty() && word.find_first_not_of(kPlain) == std::string::npos;
    line += is_plain ? word : shell_quoted(word);
  }
  return line;
}

// The file without its workload, of which the script needs only the size of the data set.
nlohmann::json file_json(const RunFile& file) {
  nlohmann::json json = *file.json;
  constexpr std::uint64_t kMostExact = std::uint64_t{1} << 53;  // in a script
  for (nlohmann::json& value : json["config"]) {
    if (value.is_number_unsigned() && value > kMostExact) value = value.dump();
  }
  json.erase("workload");
  if (file.workload) json["workload"]["rows_per_epoch"] = file.workload->rows_per_epoch;
  return json;
}

Json run_json(const PageRun& run) {
  const RunFile& file = run.file;
  Json json{{"name", run.name},
            {"headline", headline(file)},
            {"interrupted", file.interrupted.value_or("")},
            {"command", shell_line(file.command)},
            {"judged", &judged_row(file) - file.rows.data()},
            {"answers", Json::array()},
            {"missing", run.missing},
            {"file", file_json(file)}};
  for (const Answer& answer : explain(file)) {
    json["answers"].push_back({{"title", answer.title}, {"text", answer.text}});
  }
  for (const PartOfStep& part : parts_of_judged_row(file)) {
    json["parts"].push_back(
        {{"name", part.name}, {"one", part.one}, {"share", part.share}, {"row", part.row}});
  }
  if (!run.timeline.is_null()) json["timeline"] = run.timeline;
  return json;
}

}  // namespace

std::string make_page(const std::vector<PageRun>& runs, std::string_view chart_js) {
  require(!chart_js.empty(), ErrorCode::State, "report",
          "this program was built without Chart.js, which draws the page; install libjs-chart.js "
          "(scripts/setup.sh does), configure and build again");
  Json json = Json::array();
  for (const PageRun& run : runs) json.push_back(run_json(run));
  PageTemplate page(kPageHtml);
  page.put("/* page.css */", kPageCss);
  page.put("\"RUNS\"", script_text(json));
  page.put("/* chart.js */", chart_js);
  page.put("/* page.js */", kPageJs);
  return page.finish();
}

}  // namespace lockstep::tools::page
