// Training by one CUDA graph per step says and leaves what training step by step does.
#include <gtest/gtest.h>

#include "engine/runtime/physical_gpus.h"
#include "tests/support/temp_folder.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;

struct Training {
  std::vector<json> steps;  // the log
  std::string digest;
};

// Full batches of 400 rows, and one of 300 at the end of every epoch. Of each kind three are issued
// and the fourth is captured, so the last two epochs are graphs alone.
constexpr std::size_t kSteps = 24;
const std::string kMlp = "--model mlp:64-24-10 --batch 400 ";

Training train(const std::string& flags, const std::string& model = kMlp) {
  const TempFolder folder;
  const Variables variables{{"LOCKSTEP_EMULATED_GPUS", "1"}, {"LOCKSTEP_TUNING", "off"}};
  const Outcome outcome = run_command(
      "train --device cuda --log log.jsonl --steps " + std::to_string(kSteps) + " " + model + flags,
      folder.path(), variables);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  Training result;
  result.digest = weights_digest(outcome.out);
  for (const std::string& line : lines_of(read_text(folder / "log.jsonl"))) {
    result.steps.push_back(json::parse(line));
  }
  EXPECT_EQ(result.steps.size(), kSteps);
  return result;
}

void expect_equal(const Training& graph, const Training& issued) {
  ASSERT_EQ(graph.steps.size(), issued.steps.size());
  for (std::size_t i = 0; i < issued.steps.size(); ++i) {
    for (const char* key : {"step", "epoch", "loss", "lr", "grad_norm"}) {
      EXPECT_EQ(graph.steps[i][key], issued.steps[i][key]) << key << " of step " << i;
    }
    EXPECT_GT(issued.steps[i]["grad_norm"], 0);
  }
  EXPECT_EQ(graph.digest, issued.digest);
}

class GraphTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    if (runtime::physical_gpus().empty()) GTEST_SKIP() << runtime::no_gpu_reason();
  }
};

TEST_F(GraphTraining, LogsEveryStepAndClipsItsGradients) {
  expect_equal(train("--graph"), train(""));
  const Training clipped = train("--graph --clip-norm 0.05");
  expect_equal(clipped, train("--clip-norm 0.05"));
  EXPECT_NE(clipped.digest, train("").digest);
}

TEST_F(GraphTraining, OfSeveralDevicesDoesToo) {
  const std::string ddp = "--parallel ddp --devices 3 --virtual-devices cuda:0*3 --clip-norm 0.05 ";
  expect_equal(train(ddp + "--graph"), train(ddp));
}

// Rows of the test between epochs take the running statistics of rank 0.
TEST_F(GraphTraining, OfSeveralDevicesWithBatchNormDoesToo) {
  const std::string resnet =
      "--model resnet18:4 --dataset synthetic:32x8x8x1x4 --batch 16 --lr 0.01 --parallel ddp "
      "--devices 2 --virtual-devices cuda:0*2 --clip-norm 0.05 ";
  expect_equal(train("--graph", resnet), train("", resnet));
}

}  // namespace
}  // namespace lockstep::testing
