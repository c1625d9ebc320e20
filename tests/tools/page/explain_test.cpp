// The sentences on a run, whose figures are known.
#include "tools/explain/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"
#include "tests/tools/page/sample_run.h"

namespace lockstep::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

RunFile read(const nlohmann::ordered_json& json) {
  const testing::TempFolder folder;
  testing::write_json_file(folder / "run.json", json);
  return read_run_file(folder / "run.json", "test");
}

std::string answer(const RunFile& file, const std::string& title) {
  for (const Answer& answer : explain(file)) {
    if (answer.title == title) return answer.text;
  }
  return {};
}

TEST(Explain, AnswersFourQuestionsWithTheFilesFigures) {
  const RunFile file = read(testing::sample_run());
  EXPECT_EQ(explain(file).size(), 4u);
  EXPECT_EQ(name_of(judged_row(file)), "ddp x2");
  const std::string bound = answer(file, "What limits it");
  EXPECT_THAT(bound, StartsWith("ddp x2: 92 % of the step is computation, 8 % exposed comm"));
  EXPECT_THAT(bound, HasSubstr("A step of ddp x2 with batch 64 takes 6 ms"));
  EXPECT_THAT(bound, HasSubstr("Another 200 us of communication is hidden"));
  EXPECT_THAT(bound, HasSubstr("busy 90 % of the time"));
  const std::string twice = answer(file, "What twice the devices would give");
  EXPECT_THAT(twice, HasSubstr("ddp x4 with the same batch: forward and backward halve (4.5 ms to "
                               "2.25 ms)"));
  EXPECT_THAT(twice, HasSubstr("2.25 ms + 1 ms + 750 us = 4 ms a step, 1.50 times as fast"));
  // (1.5 ms - 1 ms) / (9 ms - 4.5 ms) * 64 rows
  EXPECT_THAT(answer(file, "From which batch size it pays off"),
              HasSubstr(": 8 rows a step over all"));
  EXPECT_THAT(answer(file, "What to change"), HasSubstr("Fastest in this file: ddp x2"));
  EXPECT_THAT(answer(file, "What to change"), HasSubstr("(1 ms of 6 ms: without it 1.20 times"));
}

TEST(Explain, NamesTheCoresThatTwiceTheDevicesNeed) {
  nlohmann::ordered_json json = testing::sample_run();
  json["host"]["cores"] = 2;
  EXPECT_THAT(answer(read(json), "What twice the devices would give"),
              HasSubstr("That takes 4 cores; the run had 2."));
}

TEST(Explain, ShowsTheRowThatTheFileHasOfTwiceTheDevices) {
  nlohmann::ordered_json json = testing::sample_run();
  json["rows"].push_back(testing::sample_row("ddp", 4, 0.0055));
  EXPECT_THAT(answer(read(json), "What twice the devices would give"),
              HasSubstr("The file has that row, measured: ddp x4 took 5.5 ms."));
}

TEST(Explain, GuessesNothingWhereDevicesShareTheirHardware) {
  nlohmann::ordered_json json = testing::sample_run();
  json["host"]["cores"] = 1;
  const RunFile file = read(json);
  EXPECT_THAT(answer(file, "What limits it"), HasSubstr("limited by the 1 core that the devices"));
  EXPECT_THAT(answer(file, "What twice the devices would give"), HasSubstr("cannot tell"));
  EXPECT_THAT(answer(file, "What to change"), HasSubstr("cannot be judged while devices share"));
  json["rows"][2]["speedup"] = 0.5;
  EXPECT_THAT(answer(read(json), "What to change"), HasSubstr("at most 1 device"));
}

TEST(Explain, GuessesNothingOfCommunicationFromOneDevice) {
  nlohmann::ordered_json json = testing::sample_run();
  json["rows"].erase(2);
  json["rows"].erase(1);
  const RunFile file = read(json);
  EXPECT_THAT(answer(file, "What twice the devices would give"),
              HasSubstr("Without communication, which one device does not show"));
  EXPECT_THAT(answer(file, "What twice the devices would give"), HasSubstr("1.0 MiB a step"));
  EXPECT_THAT(answer(file, "From which batch size it pays off"), HasSubstr("cannot tell"));
}

TEST(Explain, GuessesNothingWithoutABreakdown) {
  nlohmann::ordered_json json = testing::sample_run();
  for (auto& row : json["rows"]) row.erase("breakdown_seconds");
  for (const Answer& answer : explain(read(json))) {
    if (answer.title == "What to change") continue;
    EXPECT_THAT(answer.text, HasSubstr("cannot tell")) << answer.title;
  }
}

// Two sizes give the line itself: 4 ms + 2 ms a 64 rows for two devices, 4 ms a 64 rows for one.
TEST(Explain, TakesTheLineOfAFileWithSeveralBatches) {
  nlohmann::ordered_json json = testing::sample_run();
  const auto breakdown = json["rows"][2]["breakdown_seconds"];
  json["rows"] = nlohmann::ordered_json::array();
  json["config"]["per_device_batch"] = {32, 64};
  for (const int size : {1, 2}) {
    for (const int devices : {1, 2}) {
      auto row = testing::sample_row(devices == 1 ? "single" : "ddp", devices,
                                     devices == 1 ? 0.004 * size : 0.004 + 0.002 * size);
      row["batch"] = 64 * size;
      row["breakdown_seconds"] = breakdown;
      json["rows"].push_back(row);
    }
  }
  const std::string text = answer(read(json), "From which batch size it pays off");
  EXPECT_THAT(text, HasSubstr("the line through batches 64 and 128"));
  EXPECT_THAT(text, HasSubstr(": 128 rows a step"));
}

}  // namespace
}  // namespace lockstep::tools
