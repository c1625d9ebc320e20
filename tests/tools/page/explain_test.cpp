// The sentences on a run whose figures are known (explained.txt).
#include "tools/show/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"
#include "tests/tools/page/sample_run.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::tools {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> split(const std::string& text, const std::string& at) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + at.size();
  }
  return parts;
}

// A prediction: one device takes 40 us of forward and backward, eight take five.
Json predicted_run() {
  Json json = testing::sample_run();
  json["rows"] = Json::array();
  const auto add = [&](const char* name, int devices, double computation, double exposed) {
    const double seconds = computation + exposed + 1e-5;
    Json row = testing::sample_row(name, devices, seconds);
    row["kind"] = "predicted";
    row["physical_devices"] = devices;
    row["speedup"] = 5e-5 / seconds;
    row["ideal_speedup"] = devices;
    row["efficiency"] = 5e-5 / seconds / devices;
    row["breakdown_seconds"] = testing::sample_run()["rows"][0]["breakdown_seconds"];
    row["breakdown_seconds"]["forward"] = row["breakdown_seconds"]["backward"] = computation / 2;
    row["breakdown_seconds"]["exposed_comm"] = exposed;
    row["breakdown_seconds"]["optimizer"] = 1e-5;
    json["rows"].push_back(row);
  };
  add("single", 1, 4e-5, 0);
  add("ddp", 8, 5e-6, 2e-5);
  return json;
}

void apply(const std::string& edit, Json& json) {
  if (edit[0] == '*') {
    const auto words = split(edit.substr(1), ":");
    for (int i = 0; i < 2; ++i) {
      Json row = json["rows"][i];
      row["what_if"] = words[0];
      row["step_seconds"] = row["step_seconds"].get<double>() * std::stod(words[1]);
      json["rows"].push_back(row);
    }
  } else if (edit[0] == '-') {
    const Json::json_pointer place(edit.substr(1));
    Json& parent = json.at(place.parent_pointer());
    if (parent.is_array()) {
      parent.erase(std::stoul(place.back()));
    } else {
      parent.erase(place.back());
    }
  } else {
    const std::size_t equals = edit.find('=');
    json[Json::json_pointer(edit.substr(0, equals))] = Json::parse(edit.substr(equals + 1));
  }
}

std::string answer(const Json& json, const std::string& title) {
  const testing::TempFolder folder;
  testing::write_json_file(folder / "run.json", json);
  const RunFile file = read_run_file(folder / "run.json", "test");
  if (title == "Headline") return headline(file);
  for (const Answer& answer : explain(file)) {
    if (answer.title == title) return answer.text;
  }
  ADD_FAILURE() << "no answer " << title;
  return {};
}

TEST(Explain, SaysOfEveryRunWhatItsFiguresSay) {
  int num_answers = 0;
  for (const std::string& line : testing::lines_of(testing::read_text(LOCKSTEP_EXPLAINED))) {
    if (line.starts_with('#')) continue;
    SCOPED_TRACE(line);
    const auto given = split(line, " | ");
    ASSERT_EQ(given.size(), 2u);
    const auto found = split(given[1], " -> ");
    ASSERT_EQ(found.size(), 2u);
    const auto words = split(given[0], " ");
    Json json = words[0] == "predicted" ? predicted_run() : testing::sample_run();
    for (std::size_t i = 1; i < words.size(); ++i) apply(words[i], json);
    const std::string text = answer(json, found[0]);
    EXPECT_THAT(text, Not(HasSubstr("limited by computation")));
    EXPECT_THAT(text, Not(HasSubstr("as it should be")));
    for (const std::string& phrase : split(found[1], " & ")) {
      if (phrase[0] == '^') {
        EXPECT_THAT(text, StartsWith(phrase.substr(1)));
      } else if (phrase[0] == '!') {
        EXPECT_THAT(text, Not(HasSubstr(phrase.substr(1))));
      } else {
        EXPECT_THAT(text, HasSubstr(phrase));
      }
    }
    ++num_answers;
  }
  EXPECT_GT(num_answers, 35);
}

// Two devices with 32 rows each are 1.6 times as fast as one, with 64 rows 1.2 times.
TEST(Explain, AdvisesNoLargerBatchToAFileThatHasSizes) {
  Json json = testing::sample_run();
  const Json rows = json["rows"];
  json["rows"] = Json::array();
  for (const int i : {0, 1, 2, 3}) {
    const int devices = 1 + i % 2;
    const int size = 1 + i / 2;
    Json row = testing::sample_row(devices == 1 ? "single" : "ddp", devices, 0.0075 * size);
    row["breakdown_seconds"] = rows[devices == 1 ? 0 : 2]["breakdown_seconds"];
    row["batch"] = 32 * size * devices;
    row["speedup"] = devices == 1 ? 1 : 2 - 0.4 * size;
    row["ideal_speedup"] = devices;
    if (devices == 2) row["breakdown_seconds"]["exposed_comm"] = 0.002;
    json["rows"].push_back(row);
  }
  const std::string text = answer(json, "What limits it");
  EXPECT_THAT(text, HasSubstr("exposed communication"));
  EXPECT_THAT(text, Not(HasSubstr("larger batch")));
}

TEST(Explain, ThePartsOfBothStepsAddUpToTheDistanceFromTheIdeal) {
  const testing::TempFolder folder;
  testing::write_json_file(folder / "run.json", testing::sample_run());
  double one = 0;
  double share = 0;
  double row = 0;
  for (const PartOfStep& part : parts_of_judged_row(read_run_file(folder / "run.json", "test"))) {
    one += part.one;
    share += part.share;
    row += part.row;
  }
  EXPECT_NEAR(one, 0.010, 1e-12);
  EXPECT_NEAR(share, 0.005, 1e-12);
  EXPECT_NEAR(row, 0.006, 1e-12);
}

}  // namespace
}  // namespace lockstep::tools
