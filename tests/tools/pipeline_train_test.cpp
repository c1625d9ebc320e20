// train and compare with the stages of a pipeline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kDeep = "--model mlp:64-32-32-32-10 --steps 12 ";

TEST(PipelineTrain, PrintsItsBubbleBesideTheFormula) {
  const std::string out = run_well(
      std::string(
          "train --parallel pipeline --stages 4 --micro-batches 8 --pipeline-schedule 1f1b ") +
      kDeep);
  EXPECT_THAT(out, HasSubstr("(4-1)/(8+4-1)"));
  EXPECT_THAT(out, HasSubstr("% of the stages' time"));
}

TEST(PipelineTrain, RowsOfComparedPipelinesTrainAsOneDeviceDoes) {
  for (const char* flags : {"", "--ranks processes --pipeline-schedule gpipe"}) {
    SCOPED_TRACE(flags);
    const TempFolder folder;
    run_well(
        std::string("compare --modes ddp,pipeline --devices 1,2,4 --device cpu --json r --model "
                    "mlp:64-256-256-256-10 --steps 4 ") +
            flags,
        folder.path());
    const nlohmann::json rows = read_json(folder / "r")["rows"];
    ASSERT_EQ(rows.size(), 7u);
    for (const nlohmann::json& row : rows) EXPECT_EQ(row["verdict"]["equal"], true);
    EXPECT_EQ(rows[6]["mode"], "pipeline");
    EXPECT_NEAR(rows[6]["bubble"]["formula"].get<double>(), 3.0 / 19, 1e-12);
    EXPECT_GT(rows[6]["bubble"]["measured"], 0);
    EXPECT_FALSE(rows[1].contains("bubble"));
    // A stage holds its part, not the whole model's weights, gradients and momentum.
    EXPECT_LT(rows[6]["peak_bytes"][3], rows[2]["peak_bytes"][0]);
  }
}

TEST(PipelineTrain, StagesAreLanesOfTheTimeline) {
  const TempFolder folder;
  const Outcome outcome = run_lockstep(
      words(std::string("train --parallel pipeline --stages 2 --trace t.json ") + kDeep),
      folder.path());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string trace = read_json(folder / "t.json").dump();
  EXPECT_THAT(trace, HasSubstr("stage 1 on cpu:1"));
  EXPECT_THAT(trace, HasSubstr("backward 7"));
}

}  // namespace
}  // namespace lockstep::testing
