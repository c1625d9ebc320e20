// The page: its JSON block holds what the runs' files say, and no text of a file is markup.
#include "tools/show/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "tests/support/temp_folder.h"
#include "tests/tools/page/sample_run.h"
#include "tests/tools/run_lockstep.h"
#include "tools/show/explain.h"
#include "tools/show/step_timeline.h"

namespace lockstep::tools::page {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Json = nlohmann::ordered_json;

class Page : public ::testing::Test {
 protected:
  void add(const std::string& name, const Json& json, const std::string& trace = {}) {
    testing::write_json_file(folder_ / name, json);
    runs_.push_back(load_run(folder_ / name, trace, "test"));
  }
  std::string html() {
    name_runs(runs_);
    return make_page(runs_, "/* charts */");
  }
  // The data that the page's script draws.
  Json json() { return testing::json_of_page(html()); }

  testing::TempFolder folder_;
  std::vector<PageRun> runs_;
};

TEST_F(Page, HoldsAllThatItDraws) {
  testing::write_text(folder_ / "t.json", testing::sample_trace());
  add("out.json", testing::sample_run(), folder_ / "t.json");
  const Json run = json()[0];
  EXPECT_EQ(run["name"], "out");
  EXPECT_EQ(run["headline"], headline(runs_[0].file));
  EXPECT_EQ(run["command"], "lockstep compare --model mlp:64-16-10 --json out.json");
  EXPECT_EQ(run["answers"].size(), 2u);
  EXPECT_EQ(run["judged"], 2);
  EXPECT_EQ(run["timeline"]["ranks"][1]["name"], "rank 1 on cpu:1");
  const Json& row = run["file"]["rows"][2];
  EXPECT_EQ(row["mode"], "ddp");
  EXPECT_EQ(row["breakdown_seconds"]["exposed_comm"], 0.0005);
  EXPECT_EQ(run["file"]["workload"], Json({{"rows_per_epoch", 640}})) << "no layers";
}

TEST_F(Page, NeedsNoOtherFile) {
  add("out.json", testing::sample_run());
  const std::string page = html();
  for (const char* outside : {"http://", "https://", "url(", "<link", "<img", " src="}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
  EXPECT_THAT(page, AllOf(HasSubstr("/* charts */"), HasSubstr("default-src 'none'"),
                          ::testing::EndsWith("</html>\n")));
}

TEST_F(Page, WithoutChartJsSaysWhatToInstall) {
  add("out.json", testing::sample_run());
  name_runs(runs_);
  try {
    make_page(runs_, "");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("built without Chart.js"), HasSubstr("libjs-chart.js")));
  }
}

TEST_F(Page, NamesRunsOfTheSameNameByTheirPaths) {
  std::filesystem::create_directory(folder_ / "x");
  add("out.json", testing::sample_run());
  add("x/out.json", testing::sample_run());
  name_runs(runs_);
  EXPECT_NE(runs_[0].name, runs_[1].name);
  EXPECT_THAT(runs_[1].name, HasSubstr("x/out.json"));
}

TEST_F(Page, NothingInAFileIsMarkup) {
  const std::string attack =
      "</script><script>alert(1)</script>\"'&<img src=x onerror=y><!--\n\xff";
  const std::string text = attack.substr(0, attack.size() - 1);
  Json run = testing::sample_run();
  run["date"] = text;
  run["command"] = {"lockstep", text};
  for (const char* field : {"cpu", "os", "version", "build"}) run["host"][field] = text;
  run["host"]["gpus"].push_back({{"name", text}});
  for (const char* flag : {"model", "dataset", "modes"}) run["config"][flag] = text;
  run["config"][text] = text;
  run["rows"].push_back(testing::sample_row(text, 2, 0.006));
  Json events = Json::parse(testing::sample_trace());
  for (auto& event : events["traceEvents"]) {
    if (event["name"] == "process_name") event["args"]["name"] = text;
    if (event["cat"] == "forward") event["name"] = text;
  }
  testing::write_text(folder_ / "t.json", events.dump());
  add("<b>&.json", run, folder_ / "t.json");
  runs_[0].missing.push_back(attack);  // not UTF-8
  const std::string page = html();
  EXPECT_EQ(testing::count_of(page, "<script"), 3u);
  EXPECT_EQ(testing::count_of(page, "</script"), 3u);
  for (const char* markup : {"<img", "<b>", "<!--"}) EXPECT_THAT(page, Not(HasSubstr(markup)));
  EXPECT_EQ(testing::json_of_page(page)[0]["file"]["host"]["cpu"], text);
}

// --- one step out of a timeline file: whose time was whose, and what communication was hidden ---

// Two ranks' spans of one step. Without threads, spans of one lane belong to one thread.
Json lanes_of(const Json& timeline, std::size_t rank) {
  return timeline["ranks"][rank]["lanes"];
}

double seconds_of(const Json& lane, std::string_view category) {
  double total = 0;
  for (const Json& span : lane["spans"]) {
    if (span[2] == category) total += span[1].get<double>() - span[0].get<double>();
  }
  return total;
}

TEST_F(Page, ATimelineIsItsMedianStepWithoutOps) {
  testing::write_text(folder_ / "t.json", testing::sample_trace());
  testing::write_json_file(folder_ / "out.json", testing::sample_run());
  const Json timeline = load_run(folder_ / "out.json", folder_ / "t.json", "test").timeline;
  EXPECT_EQ(timeline["step"], 1);
  EXPECT_EQ(timeline["row"], "ddp x2");
  EXPECT_NEAR(timeline["seconds"].get<double>(), 0.0061, 1e-9);  // rank 1 begins 100 us later
  const Json lanes = lanes_of(timeline, 1);
  ASSERT_EQ(lanes.size(), 2u);
  EXPECT_EQ(lanes[0]["name"], "compute");
  EXPECT_NEAR(timeline["own_seconds"].get<double>(), 0.006, 1e-9);
  ASSERT_EQ(lanes[0]["spans"].size(), 4u);
  EXPECT_EQ(lanes[0]["spans"][2][2], "wait");
  EXPECT_EQ(lanes[0]["spans"][0][4], -1) << "no all-reduce";
  EXPECT_NEAR(lanes[1]["spans"][0][0].get<double>(), 0.0031, 1e-9);
  EXPECT_EQ(lanes[1]["spans"][0][4], 0) << "its only bucket";
}

// A shared batch norm all-reduces before the first bucket is launched.
TEST_F(Page, AnAllReduceOfStatisticsIsNoBucket) {
  Json events = Json::parse(testing::sample_trace());
  Json statistics;
  for (const auto& event : events["traceEvents"]) {
    if (event["name"] == "all_reduce") statistics = event;  // rank 1's last
  }
  statistics["ts"] = statistics["ts"].get<double>() - 500;
  statistics["dur"] = 200;
  statistics["args"]["sequence"] = 2;  // between the buckets of both steps
  events["traceEvents"].push_back(statistics);
  testing::write_json_file(folder_ / "t.json", events);
  testing::write_json_file(folder_ / "out.json", testing::sample_run());
  const Json timeline = load_run(folder_ / "out.json", folder_ / "t.json", "test").timeline;
  const Json lanes = lanes_of(timeline, 1);
  EXPECT_EQ(lanes[1]["spans"].front()[4], -1);
  EXPECT_EQ(lanes[1]["spans"].back()[4], 0);
}

// Forward 2 ms, backward 3 ms, in it from 3 to 4.5 ms an all-reduce and from 4 to 4.5 ms a wait: by
// one thread, or the all-reduce by another one.
TEST_F(Page, ATimelineTellsHiddenCommunicationFromExposed) {
  const auto lanes_with = [&](int comm_thread) {
    Json events = Json::parse(testing::sample_trace());
    for (auto& event : events["traceEvents"]) {
      if (event["ph"] != "X" || event["cat"] == "op") continue;
      event["args"]["thread"] = event["cat"] == "communication" ? comm_thread : 0;
    }
    testing::write_text(folder_ / "t.json", events.dump());
    return lanes_of(read_step_timeline(folder_ / "t.json", "test"), 0);
  };
  Json lanes = lanes_with(0);
  EXPECT_NEAR(seconds_of(lanes[0], "backward"), 0.0015, 1e-9) << "what the thread computed";
  EXPECT_NEAR(seconds_of(lanes[1], kHiddenComm), 0, 1e-9);
  lanes = lanes_with(1);
  EXPECT_NEAR(seconds_of(lanes[0], "backward"), 0.0025, 1e-9);
  EXPECT_NEAR(seconds_of(lanes[1], kHiddenComm), 0.001, 1e-9);
  EXPECT_NEAR(seconds_of(lanes[1], "communication"), 0.0005, 1e-9) << "while it waits";
}

}  // namespace
}  // namespace lockstep::tools::page
