// What the sentences on a run do not claim, and those on predicted rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"
#include "tests/tools/page/sample_run.h"
#include "tools/explain/explain.h"

namespace lockstep::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

RunFile read_rows(const nlohmann::ordered_json& json) {
  const testing::TempFolder folder;
  testing::write_json_file(folder / "run.json", json);
  return read_run_file(folder / "run.json", "test");
}

std::string text_of(const RunFile& file, const std::string& title) {
  for (const Answer& answer : explain(file)) {
    if (answer.title == title) return answer.text;
  }
  return {};
}

// A prediction: one device takes 40 us of forward and backward, eight take five.
nlohmann::ordered_json predicted_run(const std::string& mode) {
  nlohmann::ordered_json json = testing::sample_run();
  json["rows"] = nlohmann::ordered_json::array();
  const auto add = [&](const char* name, int devices, double computation, double exposed) {
    nlohmann::ordered_json row = testing::sample_row(name, devices, computation + exposed + 1e-5);
    row["kind"] = "predicted";
    row["physical_devices"] = devices;
    row["speedup"] = 5e-5 / (computation + exposed + 1e-5);
    row["ideal_speedup"] = devices;
    row["efficiency"] = row["speedup"].get<double>() / devices;
    row["breakdown_seconds"] = {{"data", 0.0},
                                {"copy", 0.0},
                                {"forward", computation / 2},
                                {"backward", computation / 2},
                                {"exposed_comm", exposed},
                                {"optimizer", 1e-5},
                                {"wait", 0.0},
                                {"host", 0.0},
                                {"unattributed", 0.0}};
    json["rows"].push_back(row);
  };
  add("single", 1, 4e-5, 0);
  add(mode.c_str(), 8, 5e-6, 2e-5);
  return json;
}

void add_changed(nlohmann::ordered_json& json, const std::string& what_if, double factor) {
  for (int i = 0; i < 2; ++i) {
    nlohmann::ordered_json row = json["rows"][i];
    row["what_if"] = what_if;
    row["step_seconds"] = row["step_seconds"].get<double>() * factor;
    json["rows"].push_back(row);
  }
}

TEST(ExplainLimits, SpeaksOfEveryModeThatAFileHas) {
  const RunFile file = read_rows(predicted_run("cpu_reduce"));
  EXPECT_EQ(name_of(judged_row(file)), "cpu_reduce x8");
  EXPECT_THAT(text_of(file, "What limits it"), StartsWith("cpu_reduce x8: "));
  EXPECT_THAT(text_of(file, "What twice the devices would give"), HasSubstr("not for cpu_reduce"));
  EXPECT_THAT(text_of(file, "From which batch size it pays off"), HasSubstr("cpu_reduce x8 takes"));
}

TEST(ExplainLimits, JudgesByTheRowsThatNothingChangedAndListsTheOthers) {
  nlohmann::ordered_json json = predicted_run("ddp");
  add_changed(json, "bandwidth=10x", 0.5);
  const RunFile file = read_rows(json);
  EXPECT_EQ(judged_row(file).what_if, "");
  EXPECT_THAT(
      text_of(file, "What if"),
      HasSubstr("bandwidth=10x: a step of ddp x8 with batch 64 takes 17.5 us instead of 35"));
  EXPECT_THAT(text_of(file, "What to change"),
              HasSubstr("Fastest in this file: ddp x8 (bandwidth=10x)"));
}

TEST(ExplainLimits, ClaimsNoBatchWhereComputationIsNotInProportionToTheRows) {
  nlohmann::ordered_json json = predicted_run("ddp");
  EXPECT_THAT(text_of(read_rows(json), "From which batch size it pays off"),
              HasSubstr("of the ideal 8x"));
  json["rows"][1]["breakdown_seconds"]["forward"] = 1e-5;
  json["rows"][1]["breakdown_seconds"]["exposed_comm"] = 1.25e-5;
  const std::string text = text_of(read_rows(json), "From which batch size it pays off");
  EXPECT_THAT(text,
              HasSubstr("cannot tell: forward and backward take 40 us on one device and 12.5"));
  EXPECT_THAT(text, HasSubstr("--what-if batch="));
}

TEST(ExplainLimits, ClaimsNoBatchWhereTheLinesHardlyDiffer) {
  nlohmann::ordered_json json = predicted_run("ddp");
  add_changed(json, "batch=128", 1);
  json["rows"][2]["batch"] = json["rows"][3]["batch"] = 128;
  json["rows"][2]["step_seconds"] = 7e-5;     // 20 us for 64 rows more
  json["rows"][3]["step_seconds"] = 5.45e-5;  // 19.5 us
  EXPECT_THAT(text_of(read_rows(json), "From which batch size it pays off"),
              HasSubstr("cannot tell, since both need about as long for a row"));
}

TEST(ExplainLimits, NeedsARowForEachDevice) {
  nlohmann::ordered_json json = testing::sample_run();
  json["rows"][2]["breakdown_seconds"]["optimizer"] = 0.0005;
  json["rows"][2]["breakdown_seconds"]["exposed_comm"] = 0.0;
  json["rows"][2]["step_seconds"] = 0.005;
  EXPECT_THAT(text_of(read_rows(json), "From which batch size it pays off"),
              HasSubstr(": 2 rows a step over all devices"));
}

TEST(ExplainLimits, CallsFastestWhatIsSoByEpochs) {
  nlohmann::ordered_json json = testing::sample_run();
  json["rows"][1]["step_seconds"] = 0.002;
  json["rows"][1]["speedup"] = 0.2;
  EXPECT_THAT(text_of(read_rows(json), "What to change"),
              StartsWith("Fastest in this file: ddp x2"));
}

TEST(ExplainLimits, CallsNoRowFasterForLessThanAChangeIsWorth) {
  nlohmann::ordered_json json = testing::sample_run();
  json["rows"][1]["speedup"] = 1.015;
  json["rows"][2]["speedup"] = 0.8;
  EXPECT_THAT(text_of(read_rows(json), "What to change"),
              StartsWith("Fastest in this file: single x1"));
  json["rows"][1]["speedup"] = 1.1;
  EXPECT_THAT(text_of(read_rows(json), "What to change"),
              StartsWith("Fastest in this file: ddp x1"));
}

TEST(ExplainLimits, NamesTheFastestOnlyBeyondNoise) {
  nlohmann::ordered_json json = testing::sample_run();
  json["rows"][1]["speedup"] = 1.1;
  json["rows"][2]["speedup"] = 0.8;
  json["rows"][1]["epoch_seconds"] = {0.2, 0.09, 0.11};
  EXPECT_THAT(text_of(read_rows(json), "What to change"),
              ::testing::AllOf(StartsWith("Fastest in this file: single x1"),
                               HasSubstr("ddp x1 is as fast within the noise of 12 %")));
}

TEST(ExplainLimits, AdvisesNeitherDdpNorMoreDevicesAgainstTheFile) {
  nlohmann::ordered_json json = testing::sample_run();
  json["rows"][2]["mode"] = "dp";
  json["rows"][2]["breakdown_seconds"]["copy"] = 0.0005;
  json["rows"][2]["breakdown_seconds"]["exposed_comm"] = 0.0;
  EXPECT_THAT(text_of(read_rows(json), "What to change"), HasSubstr("Use ddp"));
  json["rows"].push_back(testing::sample_row("ddp", 2, 0.007));
  EXPECT_THAT(text_of(read_rows(json), "What to change"), ::testing::Not(HasSubstr("Use ddp")));
}

TEST(ExplainLimits, SaysWhereEpochsAndStepsDisagree) {
  nlohmann::ordered_json json = testing::sample_run();
  EXPECT_THAT(text_of(read_rows(json), "What limits it"),
              ::testing::Not(HasSubstr("Whole epochs")));
  json["rows"][2]["speedup"] = 3.22;
  const std::string text = text_of(read_rows(json), "What limits it");
  EXPECT_THAT(text, HasSubstr("Whole epochs are 3.22 times as fast as the baseline's, their median "
                              "steps 1.67 times"));
  EXPECT_THAT(text, HasSubstr("161 % of the ideal is more than the hardware gives"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("as it should be")));
  json["rows"].erase(0);  // what the speed-up compares with
  EXPECT_THAT(text_of(read_rows(json), "What limits it"),
              ::testing::Not(HasSubstr("Whole epochs")));
}

TEST(ExplainLimits, KeepsTheCaveatOfADisturbedRowInEveryAnswer) {
  nlohmann::ordered_json json = testing::sample_run();
  json["rows"][2]["contended"] = true;
  for (const Answer& answer : explain(read_rows(json))) {
    EXPECT_THAT(answer.text, HasSubstr("other processes")) << answer.title;
  }
}

TEST(ExplainLimits, SaysOfOneRowWhatBoundsIt) {
  nlohmann::ordered_json json = testing::sample_run();
  json["rows"].erase(2);
  json["rows"].erase(1);
  EXPECT_THAT(text_of(read_rows(json), "What limits it"),
              StartsWith("single x1: 100 % of the step is computation: limited by computation."));
  json["workload"]["layers"][0]["parameter_bytes"] = 76800;
  EXPECT_THAT(text_of(read_rows(json), "What twice the devices would give"),
              HasSubstr("75.0 KiB a step"));
}

TEST(ExplainLimits, ProposesNoBucketsThatTheFileShowsToBeOfNoUse) {
  nlohmann::ordered_json json = predicted_run("ddp");
  EXPECT_THAT(text_of(read_rows(json), "What to change"), HasSubstr("smaller buckets"));
  add_changed(json, "bucket_mib=1", 1.0);
  EXPECT_THAT(text_of(read_rows(json), "What to change"), HasSubstr("other buckets gain nothing"));
  add_changed(json, "bucket_mib=4", 0.9);
  EXPECT_THAT(text_of(read_rows(json), "What to change"),
              HasSubstr("or bucket_mib=4, with which a step takes 31.5 us"));
}

TEST(ExplainLimits, ProposesNoLargerBatchThatTheFileShowsToBeOfNoUse) {
  nlohmann::ordered_json json = predicted_run("ddp");
  add_changed(json, "batch=128", 2.2);
  json["rows"][2]["batch"] = json["rows"][3]["batch"] = 128;
  json["rows"][3]["efficiency"] = 0.01;
  EXPECT_THAT(text_of(read_rows(json), "What to change"),
              ::testing::Not(HasSubstr("more rows per device,")));
}

TEST(ExplainLimits, CallsAPredictionNoMeasurement) {
  nlohmann::ordered_json json = predicted_run("ddp");
  nlohmann::ordered_json row = json["rows"][1];
  row["devices"] = 16;
  row["step_seconds"] = 3e-5;
  row["speedup"] = 1.0;
  json["rows"].push_back(row);
  EXPECT_THAT(text_of(read_rows(json), "What twice the devices would give"),
              HasSubstr("predicted: ddp x16 takes 30 us"));
}

// Two devices with 32 rows each are 1.6 times as fast as one, with 64 rows 1.2 times.
TEST(ExplainLimits, AdvisesNoLargerBatchAgainstTheFilesOwnSizes) {
  nlohmann::ordered_json json = testing::sample_run();
  const auto alone = json["rows"][0]["breakdown_seconds"];
  auto shared = json["rows"][2]["breakdown_seconds"];
  shared["exposed_comm"] = 0.002;
  json["rows"] = nlohmann::ordered_json::array();
  json["config"]["per_device_batch"] = {32, 64};
  for (const int size : {1, 2}) {
    for (const int devices : {1, 2}) {
      auto row = testing::sample_row(devices == 1 ? "single" : "ddp", devices, 0.0075 * size);
      row["batch"] = 32 * size * devices;
      row["speedup"] = devices == 1 ? 1 : 2 - 0.4 * size;
      row["ideal_speedup"] = devices;
      row["breakdown_seconds"] = devices == 1 ? alone : shared;
      json["rows"].push_back(row);
    }
  }
  const std::string text = text_of(read_rows(json), "What limits it");
  EXPECT_THAT(text, HasSubstr("32 rows a device reach 80 % of the ideal, 64 rows 60 %. A larger "
                              "batch per device gains nothing here."));
  EXPECT_THAT(text,
              HasSubstr("limited by exposed communication; a larger batch per device does not "
                        "help"));
}

TEST(ExplainLimits, LeavesOutCoresWhereDevicesHaveNone) {
  nlohmann::ordered_json json = predicted_run("ddp");
  json["rows"][1]["breakdown_seconds"]["exposed_comm"] = 0.0;
  json["rows"][1]["breakdown_seconds"]["optimizer"] = 1e-6;
  json["rows"][1]["step_seconds"] = 6e-6;
  const std::string text = text_of(read_rows(json), "What limits it");
  EXPECT_THAT(text, HasSubstr("as it should be; more devices would help"));
}

}  // namespace
}  // namespace lockstep::tools
