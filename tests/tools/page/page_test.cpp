// The page: well-formed, with units at every axis, and nothing of a file's text as markup.
#include "tools/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/core/error.h"
#include "tests/support/temp_folder.h"
#include "tests/tools/page/sample_run.h"
#include "tools/page/axis.h"
#include "tools/page/html_text.h"

namespace lockstep::tools::page {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Page : public ::testing::Test {
 protected:
  void add(const std::string& name, const nlohmann::ordered_json& json, NamedFiles named = {}) {
    testing::write_json_file(folder_ / name, json);
    runs_.push_back(load_run(folder_ / name, named, "test"));
  }
  std::string html() {
    name_runs(runs_);
    return make_page(runs_);
  }

  testing::TempFolder folder_;
  std::vector<PageRun> runs_;
};

std::size_t count(const std::string& text, const std::string& word) {
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    ++found;
  }
  return found;
}

// What stands between two words; empty where they do not both occur.
std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const std::size_t first = text.find(begin);
  if (first == std::string::npos) return {};
  const std::size_t last = text.find(end, first + begin.size());
  if (last == std::string::npos) return {};
  return text.substr(first + begin.size(), last - first - begin.size());
}

void expect_escaped(const std::string& text) {
  EXPECT_EQ(text.find('<'), std::string::npos) << text;
  for (std::size_t at = text.find('&'); at != std::string::npos; at = text.find('&', at + 1)) {
    const std::string entity = text.substr(at, text.find(';', at) - at);
    EXPECT_THAT(entity, ::testing::AnyOf("&amp", "&lt", "&gt", "&quot", "&#39")) << text;
  }
}

// name="value" name="value"
void expect_quoted_attributes(const std::string& tag) {
  EXPECT_EQ(count(tag, "\"") % 2, 0u) << tag;
  EXPECT_EQ(count(tag, "=\""), count(tag, "\"") / 2) << tag;
}

// Every element is closed, in order; text between them has no bare < or &.
void expect_well_formed(const std::string& html) {
  std::vector<std::string> open;
  std::size_t at = html.find("<html");
  ASSERT_NE(at, std::string::npos);
  while (at < html.size()) {
    const std::size_t end = html.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = html.substr(at + 1, end - at - 1);
    expect_quoted_attributes(tag);
    const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    if (tag[0] == '/') {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ("/" + open.back(), tag);
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
    at = std::min(html.find('<', end), html.size());
    if (name != "style") expect_escaped(html.substr(end + 1, at - end - 1));
  }
  EXPECT_TRUE(open.empty());
}

// Each figure's picture has a label at each axis; a quantity's has its unit in brackets.
void expect_labelled_axes(const std::string& html) {
  std::size_t num_figures = 0;
  for (std::size_t at = html.find("<figure"); at != std::string::npos;
       at = html.find("<figure", at + 1)) {
    const std::string figure = html.substr(at, html.find("</figure>", at) - at);
    ++num_figures;
    const std::string x = between(figure, "<text class=\"axis x\"", "</text>");
    const std::string y = between(figure, "<text class=\"axis y\"", "</text>");
    EXPECT_THAT(x, AllOf(HasSubstr("("), HasSubstr(")"))) << figure.substr(0, 60);
    ASSERT_NE(y, "") << figure.substr(0, 60);
    const bool is_quantity = figure.find("class=\"chart\"") != std::string::npos;
    if (is_quantity) {
      EXPECT_THAT(y, AllOf(HasSubstr("("), HasSubstr(")"))) << figure.substr(0, 60);
    }
  }
  EXPECT_GE(num_figures, 3u);
}

TEST_F(Page, OfOneRunIsWellFormedAndShowsAllOfIt) {
  testing::write_text(folder_ / "t.json", testing::sample_trace());
  testing::write_text(folder_ / "l.jsonl", "{\"step\":0,\"loss\":2.3}\n{\"step\":1,\"loss\":1}\n");
  add("out.json", testing::sample_run(), {folder_ / "t.json", folder_ / "l.jsonl"});
  const std::string page = html();
  expect_well_formed(page);
  expect_labelled_axes(page);
  for (const char* figure : {"epoch", "speedup", "loss", "accuracy_curve", "breakdown wide",
                             "memory", "timeline full"}) {
    EXPECT_EQ(count(page, std::string("<figure class=\"") + figure + "\">"), 1u) << figure;
  }
  EXPECT_THAT(page, AllOf(HasSubstr(">ideal</text>"), HasSubstr("1.67×"), HasSubstr("A processor"),
                          HasSubstr("lockstep compare --model mlp:64-16-10 --json out.json"),
                          HasSubstr("Not in force: log, per_device_batch, trace."),
                          HasSubstr("What bounds it"), HasSubstr("rank 1 on cpu:1")));
  for (const char* outside : {"<script", "http://", "https://", "url("}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
}

TEST_F(Page, DrawsTheMedianStepOfATimelineWithoutOps) {
  testing::write_text(folder_ / "t.json", testing::sample_trace());
  const StepTimeline timeline = read_step_timeline(folder_ / "t.json", "test");
  EXPECT_EQ(timeline.step, 1);
  EXPECT_NEAR(timeline.seconds, 0.0061, 1e-9);  // rank 1 begins 100 us later
  ASSERT_EQ(timeline.ranks.size(), 2u);
  ASSERT_EQ(timeline.ranks[1].lanes.size(), 2u);
  EXPECT_EQ(timeline.ranks[1].lanes[0].name, "compute");
  ASSERT_EQ(timeline.ranks[1].lanes[0].spans.size(), 3u);
  EXPECT_EQ(timeline.ranks[1].lanes[0].spans[2].category, "wait");
  EXPECT_NEAR(timeline.ranks[1].lanes[1].spans[0].begin, 0.0031, 1e-9);
}

TEST_F(Page, RefusesATimelineOfNumbersThatAreNone) {
  testing::write_text(folder_ / "t.json", R"({"traceEvents": [
{"ph": "X", "cat": "step", "name": "step", "pid": 1e300, "tid": 1, "ts": 0, "dur": 1}]})");
  try {
    read_step_timeline(folder_ / "t.json", "test");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("t.json'"), HasSubstr("traceEvents[0]")));
  }
}

TEST_F(Page, OfSeveralRunsComparesThem) {
  add("a.json", testing::sample_run());
  nlohmann::ordered_json other = testing::sample_run();
  other["host"]["cpu"] = "Another processor";
  add("b.json", other);
  const std::string page = html();
  expect_well_formed(page);
  expect_labelled_axes(page);
  EXPECT_THAT(page, AllOf(HasSubstr("Side by side"), HasSubstr("a: ddp x2"), HasSubstr("b: ddp x2"),
                          HasSubstr("href=\"#run-2\""), HasSubstr("id=\"run-2\""),
                          HasSubstr("Another processor, 4 cores")));
}

TEST_F(Page, NamesRunsOfTheSameNameByTheirPaths) {
  std::filesystem::create_directory(folder_ / "x");
  add("out.json", testing::sample_run());
  add("x/out.json", testing::sample_run());
  name_runs(runs_);
  EXPECT_NE(runs_[0].name, runs_[1].name);
  EXPECT_THAT(runs_[1].name, HasSubstr("x/out.json"));
}

TEST_F(Page, ShowsMeasuredActedAndPredictedRowsApart) {
  nlohmann::ordered_json run = testing::sample_run();
  for (const char* kind : {"acted", "predicted"}) {
    nlohmann::ordered_json row = run["rows"][2];
    row["kind"] = kind;
    row["slow_motion"] = 40;
    run["rows"].push_back(row);
  }
  add("out.json", run);
  const std::string page = html();
  expect_well_formed(page);
  EXPECT_THAT(page, AllOf(HasSubstr("<tr class=\"kind-acted\">"), HasSubstr("acted, 1 : 40"),
                          HasSubstr("<tr class=\"kind-predicted\">"),
                          HasSubstr("<g class=\"predicted s-ddp\">"),
                          HasSubstr("<g class=\"acted s-ddp\">"), HasSubstr("ddp, predicted")));
}

TEST_F(Page, ARowThatIsPredictedNeedsNeitherEpochsNorLoss) {
  nlohmann::ordered_json run = testing::sample_run();
  run["rows"].push_back({{"mode", "zero"},
                         {"kind", "predicted"},
                         {"devices", 8},
                         {"batch", 64},
                         {"step_seconds", 0.002}});
  add("out.json", run);
  const std::string page = html();
  expect_well_formed(page);
  EXPECT_THAT(page, HasSubstr("zero"));
}

TEST_F(Page, NothingInAFileIsMarkup) {
  const std::string attack = "</title></style><script>alert(1)</script>\"'&<img src=x onerror=y>\n";
  nlohmann::ordered_json run = testing::sample_run();
  run["date"] = attack;
  run["command"] = {"lockstep", attack};
  for (const char* field : {"cpu", "os", "version", "build"}) run["host"][field] = attack;
  run["host"]["gpus"].push_back({{"name", attack}});
  for (const char* flag : {"model", "dataset", "modes"}) run["config"][flag] = attack;
  run["config"][attack] = attack;
  run["config"][attack + "2"] = nullptr;
  run["rows"].push_back(testing::sample_row(attack, 2, 0.006));
  std::string trace = testing::sample_trace();
  nlohmann::ordered_json events = nlohmann::ordered_json::parse(trace);
  for (auto& event : events["traceEvents"]) {
    if (event["ph"] == "M") event["args"]["name"] = attack;
    if (event["cat"] == "forward") event["cat"] = event["name"] = attack;
  }
  testing::write_text(folder_ / "t.json", events.dump());
  add("<b>&.json", run, {folder_ / "t.json", ""});
  add("other.json", run);
  const std::string page = html();
  expect_well_formed(page);
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, Not(HasSubstr("<b>&")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;"));
}

TEST_F(Page, OfAHundredRunsStaysSmall) {
  for (int i = 0; i < 100; ++i) add("run" + std::to_string(i) + ".json", testing::sample_run());
  const std::string page = html();
  EXPECT_LT(page.size(), 3'000'000u);
  EXPECT_EQ(count(page, "<details class=\"run\""), 100u);
}

TEST(HtmlText, ShortNumbersHaveThreeDigits) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(4.376), "4.38");
  EXPECT_EQ(short_number(10), "10");
  EXPECT_EQ(short_number(0.25), "0.25");
  EXPECT_EQ(short_number(1234.5), "1234");
  EXPECT_EQ(short_number(1e-9), "1.00e-09");
}

TEST(HtmlText, LongNamesKeepTheirEnd) {
  EXPECT_EQ(shortened("short", 5), "short");
  EXPECT_EQ(shortened("a long name", 5), "…name");
  EXPECT_EQ(num_letters("µs"), 2u);
  EXPECT_EQ(shortened("µµµµ", 3), "…µµ");
}

TEST(HtmlText, ShellLinesReadBackAsTheirWords) {
  EXPECT_EQ(shell_line({"a", "b c", "it's", ""}), "a 'b c' 'it'\\''s' ''");
}

TEST(Axis, EndsAtARoundFigureAboveTheLargest) {
  EXPECT_DOUBLE_EQ(axis_to(0.93).end, 1.0);
  EXPECT_DOUBLE_EQ(axis_to(7).end, 8.0);
  EXPECT_DOUBLE_EQ(axis_to(0).end, 1.0);
  EXPECT_DOUBLE_EQ(tight_axis_to(7).end, 7.0);
  EXPECT_DOUBLE_EQ(tight_axis_to(7).ticks.back(), 6.0);
}

}  // namespace
}  // namespace lockstep::tools::page
