#include "tools/run/losses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/tools/run_lockstep.h"

namespace lockstep::tools {
namespace {

using ::testing::HasSubstr;

// The warnings about the losses of a run, one after another; guessing costs 2.3026.
std::vector<std::string> warnings(const std::vector<double>& losses) {
  LossWatch watch(10);
  std::vector<std::string> found;
  for (std::size_t step = 0; step < losses.size(); ++step) {
    if (const auto warning = watch.see(step, losses[step])) found.push_back(*warning);
  }
  return found;
}

TEST(LossWatch, NamesTheStepAndTheLossOfAnExplosionOnce) {
  EXPECT_THAT(warnings({2.3, 2.9, 23.5, 900, 1e6}),
              ::testing::ElementsAre("the loss exploded: 2.3 at step 0, 23.5 at step 2; use a "
                                     "smaller --lr, or --clip-norm"));
}

// Weights that were trained before begin with a small loss, and may lose much of it again.
TEST(LossWatch, MeasuresByTheFirstLossOrByGuessingWhateverIsLarger) {
  EXPECT_TRUE(warnings({80, 400, 799, 3}).empty());
  EXPECT_EQ(warnings({80, 801}).size(), 1u);
  EXPECT_TRUE(warnings({0.001, 2.5, 10, 0.4}).empty());
  EXPECT_EQ(warnings({0.001, 24}).size(), 1u);
}

// The warning that a command prints, and nothing besides.
void expect_one_warning(const std::string& command) {
  const testing::Outcome outcome = testing::run_lockstep(testing::words(command));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("[train] warning: the loss exploded: 2.3"));
  EXPECT_THAT(outcome.err, HasSubstr("use a smaller --lr, or --clip-norm"));
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
}

TEST(LossWatch, TrainWarnsOfALargeRateOnce) {
  const std::string rate = " --lr 1000 --steps 5 --dtype float64";
  for (const char* devices : {"", " --parallel dp --devices 2", " --parallel ddp --devices 2",
                              " --parallel ddp --devices 2 --bitwise"}) {
    expect_one_warning(std::string("train --device cpu") + devices + rate);
  }
}

TEST(LossWatch, CompareComparesTheStepsOfARunThatExplodesAndNotItsWeights) {
  const testing::Outcome outcome = testing::run_lockstep(
      testing::words("compare --device cpu --devices 1,2 --lr 1000 --steps 5 --dtype float64"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("verdict: every row makes the steps that one device makes"));
  EXPECT_THAT(outcome.out, HasSubstr("are not compared: the loss exploded: 2.3"));
}

TEST(LossWatch, CompareJudgesTheMeanOverAllRanks) {
  const testing::Outcome outcome = testing::run_lockstep(
      testing::words("compare --device cpu --devices 1,2 --modes ddp --lr 1000 --steps 5 "
                     "--dtype float64 --json -"));
  const nlohmann::json rows = nlohmann::json::parse(outcome.out)["rows"];
  const std::string single = rows.front()["verdict"]["weights_not_compared"];
  EXPECT_THAT(single, HasSubstr(" at step 0"));
  EXPECT_EQ(rows.back()["verdict"]["weights_not_compared"], single);
}

TEST(LossWatch, RanksThatAreProcessesWarnOnce) {
  const testing::Outcome outcome = testing::run_lockstep(testing::words(
      "train --device cpu --parallel ddp --ranks processes --devices 2 --lr 1000 --steps 5 "
      "--dtype float64"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string warning = "the loss exploded";
  EXPECT_THAT(outcome.err, HasSubstr(warning));
  EXPECT_EQ(outcome.err.find(warning), outcome.err.rfind(warning)) << outcome.err;
}

}  // namespace
}  // namespace lockstep::tools
