#include "tests/fuzz/readers/run_readers.h"

#include <cmath>
#include <string_view>

#include "tools/explain/explain.h"
#include "tools/page/loss_log.h"
#include "tools/page/page.h"
#include "tools/page/step_timeline.h"
#include "tools/prediction/run_workload.h"

namespace lockstep::testing {
namespace {

// A page that is whole, and has no picture of what is no number.
void expect_drawable(const std::string& page) {
  expect(page.ends_with("</html>\n"), "the page does not end");
  for (const std::string_view wrong : {"=\"nan", "=\"-nan", "=\"inf", "=\"-inf", "Mnan", "Lnan"}) {
    expect(page.find(wrong) == std::string::npos, "a picture of what is no number");
  }
}

}  // namespace

void read_workload_file(const std::filesystem::path& path) {
  const tools::RunWorkload run = tools::read_run_workload(path.string());
  expect(!run.step.layers.empty() && run.rows_per_epoch >= run.step.batch,
         "a workload without work");
}

void read_run(const std::filesystem::path& path) {
  std::vector<tools::page::PageRun> runs(1);
  runs[0].file = tools::read_run_file(path, "explain");
  tools::page::name_runs(runs);
  expect(!tools::explain(runs[0].file).empty(), "nothing is said of a run");
  expect_drawable(tools::page::make_page(runs));
  runs.push_back(runs[0]);
  expect_drawable(tools::page::make_page(runs));
}

void read_loss_log(const std::filesystem::path& path) {
  const std::vector<tools::page::Point> losses = tools::page::read_losses(path, "report");
  expect(!losses.empty() && losses.size() <= 240, "as many losses as no curve has");
  for (const tools::page::Point& point : losses) {
    expect(std::isfinite(point.x) && std::isfinite(point.y), "a loss is not finite");
  }
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
  expect_drawable(tools::page::make_page(runs));
}

}  // namespace lockstep::testing
