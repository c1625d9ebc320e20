// lockstep report and lockstep explain as a user runs them: with good files and bad ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "tests/tools/page/sample_run.h"
#include "tests/tools/run_lockstep.h"
#include "tools/show/page_files.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PageCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    if (tools::page::kChartJs.empty()) GTEST_SKIP() << "built without Chart.js";
    write_json_file(folder_ / "run.json", sample_run());
  }

  Outcome run(const std::string& arguments) { return run_command(arguments, folder_.path()); }
  // Both commands refuse this file, by name.
  void expect_refused(const std::string& text, const std::vector<std::string>& phrases) {
    write_text(folder_ / "bad.json", text);
    std::vector<std::string> all = phrases;
    all.push_back("'bad.json'");
    expect_rejected(run("explain bad.json"), 1, all);
    expect_rejected(run("report run.json bad.json"), 1, all);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "report.html"));
  }

  TempFolder folder_;
};

TEST_F(PageCommand, ReportSaysWhatItWroteAndWhatIsMissing) {
  const Outcome outcome = run("report run.json -o page.html");
  expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("report: page.html (1 run, "));
  EXPECT_THAT(outcome.out, HasSubstr("No timeline of a step: the run was made without --trace"));
  EXPECT_THAT(read_text(folder_ / "page.html"), HasSubstr("</html>"));
}

// In slow motion each collective is in the trace twice, on its thread's lane and on its device's.
TEST_F(PageCommand, ATimelineNumbersBucketsFromZeroOnEveryRank) {
  const Outcome outcome =
      run("compare --act-as dgx-a100 --model mlp:64-512-512-512-10 --modes ddp --devices 2 "
          "--batch 128 --steps 4 --json acted.json --trace acted.trace.json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  expect_success(run("report acted.json -o page.html"));
  const auto timeline = json_of_page(read_text(folder_ / "page.html"))[0]["timeline"];
  ASSERT_EQ(timeline["ranks"].size(), 2u);
  for (const auto& rank : timeline["ranks"]) {
    std::set<int> buckets;
    for (const auto& lane : rank["lanes"]) {
      for (const auto& span : lane["spans"]) {
        if (span[3] == "all_reduce" && lane["name"] == "comm") buckets.insert(span[4].get<int>());
      }
    }
    EXPECT_EQ(buckets, (std::set<int>{0, 1})) << rank["name"];
  }
}

TEST_F(PageCommand, TruncatedFilesAreNamedWithTheLine) {
  const std::string whole = read_text(folder_ / "run.json");
  expect_refused(whole.substr(0, whole.size() / 2), {"truncated", "line "});
  expect_refused("", {"empty"});
}

TEST_F(PageCommand, OtherFilesAreNamedForWhatTheyAre) {
  expect_refused("{\n\"a\": 1,\n oops }", {"is not JSON", "line 3"});
  expect_refused(R"({"schema":"lockstep.bench-step/1","rows":[]})",
                 {"'lockstep.bench-step/1'", "expected 'lockstep.run/1'"});
  expect_refused(R"({"schema":"lockstep.run/9"})", {"another version"});
  expect_refused(R"({"name":"something","version":3})", {"another program's JSON"});
  expect_refused("[1, 2]", {"another program's JSON"});
  expect_refused(sample_trace(), {"a timeline", "--trace-file"});
}

TEST_F(PageCommand, FieldsThatCannotBeTrueAreNamed) {
  const std::tuple<const char*, const char*, std::vector<std::string>> mistakes[] = {
      {"/rows/2/step_seconds", "-1", {"rows[2].step_seconds", "found -1"}},
      {"/rows/1/devices", "0", {"rows[1].devices", "1 or more"}},
      {"/rows/1/mode", "null", {"rows[1].mode", "found nothing"}},
      {"/rows/0/kind", "\"guessed\"", {"rows[0].kind", "measured, acted or predicted"}},
      {"/rows", "[]", {"rows", "at least one"}},
      {"/workload/layers/0/output_bytes", "null", {"workload.layers[0].output_bytes"}},
      // fields that only the page's script reads
      {"/date", "-1", {"date"}},
      {"/host/os", "[]", {"host.os"}},
      {"/config/seed", "{}", {"seed"}},
      {"/rows/0/losses", "{}", {"rows[0].losses"}},
      {"/rows/0/peak_bytes", "-1", {"peak_bytes"}},
      {"/rows/0/final_loss", "\"x\"", {"final_loss"}},
      {"/rows/0/verdict", "1", {"verdict"}},
      {"/rows/0/iterations", "-1", {"iterations"}},
      {"/rows/0/test_accuracy", "true", {"test_accuracy"}},
      {"/rows/0/epoch_accuracy", "[2]", {"epoch_accuracy"}}};
  for (const auto& [field, value, phrases] : mistakes) {
    nlohmann::json run_file = nlohmann::json::parse(sample_run().dump());
    run_file[nlohmann::json::json_pointer(field)] = nlohmann::json::parse(value);
    expect_refused(run_file.dump(), phrases);
  }
}

TEST_F(PageCommand, ALossThatExplodedIsDrawn) {
  nlohmann::ordered_json run_file = sample_run();
  run_file["rows"][0]["losses"] = {{"steps_per_point", 1}, {"mean", {2.3, 1e35, nullptr}}};
  write_text(folder_ / "exploded.json", run_file.dump());
  expect_success(run("report exploded.json"));
}

TEST_F(PageCommand, AFolderMeansAllRunFilesInItByName) {
  std::filesystem::create_directories(folder_ / "results" / "deeper");
  for (const char* name : {"group10.json", "group2.json", "group1.json", "deeper/not_read.json"}) {
    write_json_file(folder_ / "results" / name, sample_run());
  }
  write_text(folder_ / "results" / "group1.trace.json", sample_trace());
  write_text(folder_ / "results" / "notes.txt", "not JSON");
  const Outcome outcome = run("report results run.json -o all.html");
  expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("report: all.html (4 runs, "));
  EXPECT_THAT(outcome.out, HasSubstr("left out, not a run file: results/group1.trace.json"));
  std::vector<std::string> names;
  for (const auto& each : json_of_page(read_text(folder_ / "all.html")))
    names.push_back(each["name"]);
  EXPECT_THAT(names, ::testing::ElementsAre("group1", "group10", "group2", "run"));
}

TEST_F(PageCommand, AFolderWithoutRunFilesOrWithABrokenOneIsNamed) {
  std::filesystem::create_directory(folder_ / "results");
  expect_rejected(run("report results"), 1, {"no run file in the folder 'results'", "--json"});
  write_text(folder_ / "results" / "half.json", "{\"schema\": ");
  expect_rejected(run("report results"), 1, {"half.json", "truncated"});
  EXPECT_FALSE(std::filesystem::exists(folder_ / "report.html"));
}

TEST_F(PageCommand, MistakesAreNamedBeforeAnythingIsWritten) {
  expect_rejected(run("explain none.json"), 1, {"none.json"});
  expect_rejected(run("report run.json --trace-file none.json"), 1, {"none.json"});
  expect_rejected(run("report run.json --trace-file run.json"), 1, {"'run.json'", "traceEvents"});
  expect_rejected(run("report"), 2, {"runs is missing"});
  expect_rejected(run("explain"), 2, {"run is missing"});
  expect_rejected(run("report run.json -o run.json"), 2, {"--output", "name another"});
  expect_rejected(run("report run.json run.json --trace-file t.json"), 2, {"belongs to one run"});
  expect_rejected(run("report run.json -o none/page.html"), 1, {"--output"});
  EXPECT_EQ(read_json(folder_ / "run.json")["schema"], "lockstep.run/1");
}

TEST_F(PageCommand, ATimelineThatTheRunFileNamesIsFoundBesideIt) {
  nlohmann::ordered_json run_file = sample_run();
  run_file["config"]["trace"] = "elsewhere/trace.json";
  write_json_file(folder_ / "run.json", run_file);
  EXPECT_THAT(run("report run.json").out, HasSubstr("the run wrote elsewhere/trace.json"));
  write_text(folder_ / "trace.json", "{}");
  EXPECT_THAT(run("report run.json").out,
              HasSubstr("trace.json beside the run file cannot be drawn"));
  write_text(folder_ / "trace.json", sample_trace());
  const Outcome outcome = run("report run.json");
  expect_success(outcome);
  EXPECT_THAT(outcome.out, Not(HasSubstr("timeline")));
  EXPECT_THAT(read_text(folder_ / "report.html"), HasSubstr("\"timeline\":"));
}

// A run file comes from anywhere: it must not make the page show another file.
TEST_F(PageCommand, AFileThatTheRunFileNamesElsewhereIsNotRead) {
  std::filesystem::create_directory(folder_ / "runs");
  write_text(folder_ / "secret", "{\"user\": \"a secret\"");
  const std::string absolute = (folder_ / "secret").string();
  nlohmann::ordered_json run_file = sample_run();
  for (const std::string& name : {std::string("../secret"), absolute}) {
    run_file["config"]["trace"] = name;
    write_json_file(folder_ / "runs/run.json", run_file);
    EXPECT_THAT(run("report runs/run.json").out, HasSubstr("is not beside the run"));
    EXPECT_THAT(read_text(folder_ / "report.html"), Not(HasSubstr("a secret")));
  }
  write_text(folder_ / "runs/secret", "{\"user\": \"a secret\"");
  EXPECT_THAT(run("report runs/run.json").out, HasSubstr("beside the run file cannot be drawn"));
  EXPECT_THAT(read_text(folder_ / "report.html"), Not(HasSubstr("a secret")));
  std::filesystem::remove(folder_ / "runs/secret");
  std::filesystem::create_symlink(absolute, folder_ / "runs/secret");
  EXPECT_THAT(run("report runs/run.json").out, HasSubstr("is not beside the run"));
}

TEST_F(PageCommand, BothReadWhatTrainAndCompareWrite) {
  expect_success(
      run("compare --modes dp,ddp --devices 1,2 --steps 4 --model mlp:64-16-10 --json "
          "compare.json"));
  // It says on stderr where the trace is.
  const Outcome trained =
      run("train --parallel ddp --devices 2 --steps 6 --model mlp:64-16-10 "
          "--log log --trace trace.json --json train.json");
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  for (const char* file : {"compare.json", "train.json"}) {
    const Outcome outcome = run(std::string("explain ") + file);
    expect_success(outcome);
    EXPECT_THAT(outcome.out, HasSubstr("What limits it\n"));
  }
  expect_success(run("report compare.json train.json"));
  const auto runs = json_of_page(read_text(folder_ / "report.html"));
  EXPECT_EQ(runs[0]["file"]["rows"][3]["losses"]["mean"].size(), 4u);
  EXPECT_EQ(runs[1]["file"]["rows"][0]["losses"]["mean"].size(), 6u);
  EXPECT_EQ(runs[1]["timeline"]["ranks"][1]["name"], "rank 1 on cpu:1");
  EXPECT_THAT(runs[1]["headline"].get<std::string>(), HasSubstr("2 CPU devices take "));
}

}  // namespace
}  // namespace lockstep::testing
