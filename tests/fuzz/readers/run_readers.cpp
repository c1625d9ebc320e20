#include "tests/fuzz/readers/run_readers.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/explain/explain.h"
#include "tools/page/page.h"
#include "tools/page/step_timeline.h"
#include "tools/prediction/run_workload.h"

namespace lockstep::testing {
namespace {

// The page is whole, and its JSON is.
void expect_drawable(const std::vector<tools::page::PageRun>& runs) {
  const std::string page = tools::page::make_page(runs, "/* charts */");
  expect(page.ends_with("</html>\n"), "the page does not end");
  const std::string begin = "type=\"application/json\">";
  const std::size_t at = page.find(begin) + begin.size();
  expect(nlohmann::json::accept(page.substr(at, page.find("</script>", at) - at)),
         "the page's script has nothing to read");
}

}  // namespace

void read_workload_file(const std::filesystem::path& path) {
  const tools::RunWorkload run = tools::read_run_workload(path.string());
  expect(!run.step.layers.empty() && run.rows_per_epoch > 0, "a workload without work");
}

void read_run(const std::filesystem::path& path) {
  std::vector<tools::page::PageRun> runs(1);
  runs[0].file = tools::read_run_file(path, "explain");
  tools::page::name_runs(runs);
  expect(!tools::explain(runs[0].file).empty(), "nothing is said of a run");
  expect_drawable(runs);
  runs.push_back(runs[0]);
  expect_drawable(runs);
}

void read_loss_log(const std::filesystem::path& path) {
  const tools::ThinnedLosses losses = tools::page::read_losses(path, "report");
  expect(!losses.mean.empty() && losses.mean.size() <= tools::ThinnedLosses::kMostPoints,
         "as many losses as no curve has");
  for (const double loss : losses.mean) expect(std::isfinite(loss), "a loss is not finite");
}

void read_timeline(const std::filesystem::path& path) {
  std::vector<tools::page::PageRun> runs(1);
  runs[0].file.rows.emplace_back().step_seconds = 1;
  runs[0].timeline = tools::page::read_step_timeline(path, "report");
  const tools::page::StepTimeline& timeline = *runs[0].timeline;
  expect(timeline.seconds > 0 && std::isfinite(timeline.seconds), "a step takes no time");
  for (const tools::page::RankLanes& rank : timeline.ranks) {
    for (const tools::page::Lane& lane : rank.lanes) {
      for (const tools::page::LaneSpan& span : lane.spans) {
        expect(span.begin >= 0 && span.begin <= span.end && span.end <= timeline.seconds,
               "a span lies outside of its step");
      }
    }
  }
  expect_drawable(runs);
}

}  // namespace lockstep::testing
