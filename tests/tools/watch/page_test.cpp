// The page of `lockstep watch`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "engine/core/files.h"
#include "tests/tools/run_lockstep.h"
#include "tools/watch/page_files.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class WatchPage : public ::testing::Test {
 protected:
  std::string page_of(const std::string& flags) {
    outcome_ = run_command("watch -o step.html " + flags, folder_.path());
    expect_success(outcome_);
    return read_text_file(folder_.path() / "step.html", "test");
  }

  json recordings_of(const std::string& page) {
    const std::string begin = R"(<script id="recordings" type="application/json">)";
    const std::size_t at = page.find(begin) + begin.size();
    return json::parse(page.substr(at, page.find("</script>", at) - at));
  }

  TempFolder folder_;
  Outcome outcome_;
};

TEST_F(WatchPage, HasTwoRecordingsSideBySideAndTheirSentencesAsLists) {
  const std::string page = page_of("--model mlp:8-6-4 --modes dp,ddp --devices 4 --numbers");
  EXPECT_LT(page.size(), 400'000U);
  EXPECT_THAT(outcome_.out, HasSubstr("--dataset synthetic:256x8x4, which fits mlp:8-6-4"));
  const json recordings = recordings_of(page);
  ASSERT_EQ(recordings.size(), 2U);
  std::size_t num_moments = 0;
  for (const json& recording : recordings) {
    EXPECT_EQ(recording["ranks"].size(), 4U);
    EXPECT_EQ(recording["fault"], "");
    num_moments += recording["moments"].size();
  }
  EXPECT_EQ(count_of(page, "<li>"), num_moments);
  EXPECT_THAT(page, HasSubstr("equal on all 4 ranks, bit for bit."));
  EXPECT_EQ(page.find(" src="), page.npos) << "the page needs no other file";
  EXPECT_EQ(page.find(" href="), page.npos);
}

TEST_F(WatchPage, IsMadeByTrainToo) {
  const std::string out =
      run_well("train --parallel ddp --devices 2 --steps 4 --watch step.html", folder_.path());
  EXPECT_THAT(out, HasSubstr("watch: step.html"));
  const std::string page = read_text_file(folder_.path() / "step.html", "test");
  EXPECT_EQ(recordings_of(page)[0]["style"], "ddp");
}

TEST_F(WatchPage, PlaysSlowMotionInTheMachinesOwnTime) {
  const std::string page =
      page_of("--act-as dgx-a100 --modes ddp --devices 2 --model mlp:64-128-10 --slow-motion 50");
  const json recording = recordings_of(page)[0];
  EXPECT_THAT(recording["about"].get<std::string>(), HasSubstr("dgx-a100"));
  EXPECT_FALSE(recording["lanes"][0][0].empty());
}

TEST_F(WatchPage, QuotesTheEngineForEveryKindOfMoment) {
  const json quotes = json::parse(watch::kQuotes);
  for (const char* kind :
       {"rows", "scatter", "replicate", "forward", "loss", "gather", "backward", "gradient",
        "reduce", "call", "arrive", "done", "message", "freed", "update"}) {
    ASSERT_TRUE(quotes.contains(kind)) << kind;
    EXPECT_FALSE(quotes[kind]["text"].get<std::string>().empty()) << kind;
  }
}

}  // namespace
}  // namespace lockstep::testing
