// train and compare with the stages of a pipeline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/nn/state_dict.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kDeep = "--model mlp:64-32-32-32-10 --steps 12 ";

// The weights that a run saves, by name.
nn::StateDict trained(const std::string& flags) {
  const TempFolder folder;
  const Outcome outcome = run_lockstep(words("train --save w.safetensors " + flags), folder.path());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return nn::load_weights(folder / "w.safetensors");
}

void expect_close(const nn::StateDict& found, const nn::StateDict& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].first, expected[i].first);
    const std::vector<double> a = found[i].second.to_vector<double>();
    const std::vector<double> b = expected[i].second.to_vector<double>();
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t k = 0; k < a.size(); ++k) EXPECT_NEAR(a[k], b[k], 1e-6);
  }
}

TEST(PipelineTrain, SavesOneDevicesWeights) {
  const nn::StateDict expected = trained(kDeep);
  for (const char* flags :
       {"--stages 4 --micro-batches 8 --schedule 1f1b", "--stages 2 --schedule interleaved",
        "--stages 3 --micro-batches 7 --schedule gpipe", "--stages 2 --ranks processes"}) {
    SCOPED_TRACE(flags);
    expect_close(trained(std::string(kDeep) + "--parallel pipeline " + flags), expected);
  }
}

TEST(PipelineTrain, AGptsTableIsOnTwoStages) {
  const std::string gpt =
      "--model gpt:2-2-16-16 --dataset embedded-text --optimizer adamw --clip-norm 0.5 --steps 4 ";
  expect_close(trained(gpt + "--parallel pipeline --stages 2 --precision float32"), trained(gpt));
}

TEST(PipelineTrain, PrintsItsBubbleBesideTheFormula) {
  const Outcome outcome = run_lockstep(
      words(std::string("train --parallel pipeline --stages 4 --micro-batches 8 --schedule 1f1b ") +
            kDeep));
  expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("(4-1)/(8+4-1)"));
  EXPECT_THAT(outcome.out, HasSubstr("% of the stages' time"));
}

TEST(PipelineTrain, RowsOfComparedPipelinesTrainAsOneDeviceDoes) {
  for (const char* flags : {"", "--ranks processes --schedule gpipe"}) {
    SCOPED_TRACE(flags);
    const TempFolder folder;
    expect_success(run_lockstep(
        words(
            std::string("compare --modes ddp,pipeline --devices 2,4 --device cpu --json r --model "
                        "mlp:64-256-256-256-10 --steps 4 ") +
            flags),
        folder.path()));
    const nlohmann::json rows = read_json(folder / "r")["rows"];
    ASSERT_EQ(rows.size(), 5u);
    for (const nlohmann::json& row : rows) EXPECT_EQ(row["verdict"]["equal"], true);
    EXPECT_EQ(rows[4]["mode"], "pipeline");
    EXPECT_NEAR(rows[4]["bubble"]["formula"].get<double>(), 3.0 / 19, 1e-12);
    EXPECT_GT(rows[4]["bubble"]["measured"], 0);
    EXPECT_FALSE(rows[1].contains("bubble"));
    // A stage holds its part, not the whole model's weights, gradients and momentum.
    EXPECT_LT(rows[4]["peak_bytes"][3], rows[1]["peak_bytes"][0]);
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
