// Image nets in the commands that look into a step: bench step, plan, predict and
// explain.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json bench_images(const std::string& flags) {
  const Outcome outcome = run_command("bench step --seconds 0.001 " + flags + " --json -");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return json::parse(outcome.out)["rows"];
}

double flops_of(const json& row) {
  return row["gflops"].get<double>() * 1e9 * row["median_step_seconds"].get<double>();
}

TEST(ImageNets, BenchStepCountsTheProductsOfConvolutions) {
  const json rows = bench_images("--model cnn:3c3-p2-5 --dataset synthetic:10x8x6x2x5 --batch 4");
  ASSERT_EQ(rows.size(), 1u);
  // 8 x 6 pixels, patches of 3 x 3 x 2; then 4 x 3 pixels of 3 channels.
  EXPECT_NEAR(flops_of(rows[0]), 4 * (4.0 * 48 * 18 * 3 + 6.0 * 36 * 5), 1);
  EXPECT_EQ(bench_images("--model lenet,resnet18:4 --batch 2").size(), 2u);
}

TEST(ImageNets, BenchStepSaysWhatEachLayerKeeps) {
  const json row =
      bench_images("--model cnn:3c3-p2-5 --dataset synthetic:10x8x6x2x5 --batch 4 --memory")[0];
  ASSERT_EQ(row["memory"].size(), 2u);
  const json& conv = row["memory"][0];
  EXPECT_EQ(conv["layer"], "0");
  EXPECT_EQ(conv["parameter_bytes"], (18 * 3 + 3) * 4);
  // Its output is kept; the pool's output and winners are too; and a copy in another order for the
  // linear layer. The pool's own result is not kept.
  EXPECT_EQ(conv["activation_bytes"], 4 * 4 * (48 * 3 + 12 * 3 + 12 * 3));
  EXPECT_GT(row["peak_bytes"], conv["activation_bytes"]);
  const std::string out =
      run_well("bench step --model resnet18:4 --batch 2 --seconds 0.001 --memory");
  EXPECT_THAT(out, AllOf(HasSubstr("layer4.1.conv2"), HasSubstr("a step's measured peak")));
}

// tests/tools/mistakes.txt has those that are refused.
TEST(ImageNets, BatchNormTakesALoneRowThatIsNotReachedOrHasSeveralPixels) {
  for (const char* flags : {"--batch 1499 --steps 1", "--batch 1498 --epochs 1",
                            "--batch 1498 --steps 1 --parallel ddp --devices 2",
                            "--batch 1498 --epochs 1 --parallel ddp --devices 2 --sync-batch-norm",
                            "--batch 2 --epochs 1 --dataset synthetic:3x16x16x1x3"}) {
    SCOPED_TRACE(flags);
    expect_success(run_command(std::string("train --device cpu --model resnet18:4 ") + flags));
  }
}

TEST(ImageNets, PlanPrintsTheirBuckets) {
  const std::string out = run_well("plan buckets --model resnet18:16");
  EXPECT_THAT(out, AllOf(HasSubstr("layer1.0.conv1.weight [16, 3, 3, 16]"),
                         HasSubstr("parameter 61: fc.bias [10]")));
}

class ImageNetRun : public ::testing::Test {
 protected:
  json predict(const std::string& train, const std::string& flags) {
    run(train + " --json run.json");
    run("predict --workload run.json --topology dgx1-v100 --strategy ddp --json p.json " + flags);
    return read_json(folder_ / "p.json")["rows"];
  }
  std::string run(const std::string& arguments) { return run_well(arguments, folder_.path()); }
  json layers() { return read_json(folder_ / "run.json")["workload"]["layers"]; }

  TempFolder folder_;
};

std::vector<std::string> layer_names(const json& layers) {
  std::vector<std::string> names;
  for (const json& layer : layers) names.push_back(layer["name"]);
  return names;
}

TEST_F(ImageNetRun, ItsFileHasTheSizesOfALayer) {
  run("train --model lenet --batch 20 --steps 2 --json run.json");
  const json all = layers();
  EXPECT_THAT(layer_names(all), ElementsAre("0", "3", "7", "9"));
  // Images get margins up to 28 x 28.
  const json product = all[0]["product"];
  EXPECT_EQ(product["rows"], 26 * 26);
  EXPECT_EQ(product["inputs"], 9);
  EXPECT_EQ(product["outputs"], 20);
  EXPECT_EQ(product["image_bytes"], 4 * (8 * 8 + 26 * 26 * 20));
  EXPECT_THAT(all[0]["forward_bytes"], ElementsAre(4 * 20 * (26 * 26 + 13 * 13)));
  EXPECT_EQ(all[0]["output_bytes"], 4 * 20 * 13 * 13);
  EXPECT_EQ(all[3]["product"]["rows"], 1);
  EXPECT_EQ(all[3]["product"]["image_bytes"], 0);
  for (const json& layer : all) {
    EXPECT_GT(layer["forward_seconds"], 0);
    EXPECT_GT(layer["backward_seconds"], 0);
  }
}

TEST_F(ImageNetRun, PredictsOtherDevicesByTheSizes) {
  const json few = predict("train --model resnet18:16 --batch 16 --steps 2", "--devices 1,2,4,8");
  ASSERT_EQ(few.size(), 4u);
  const json all = layers();
  EXPECT_EQ(all.size(), 41u);  // 20 convolutions, as many batch norms, a linear layer
  EXPECT_THAT(all[1]["buffer_bytes"], ElementsAre(64, 64, 8));
  EXPECT_FALSE(all[1].contains("product"));
  // A hundred kernels and more, however few the rows; and eight times the rows are seldom free.
  EXPECT_GT(few[0]["step_seconds"], 200 * 3e-6);
  const json more = predict("train --model resnet18:16 --batch 16 --steps 2",
                            "--devices 1,8 --what-if batch=1024");
  EXPECT_GT(more.back()["speedup"], few.back()["speedup"]);
  EXPECT_THAT(run("explain run.json"), HasSubstr("What is fastest"));
}

TEST_F(ImageNetRun, SharedStatisticsCostAnExchangeForEachBatchNorm) {
  const std::string train = "train --model resnet18:4 --batch 16 --steps 1";
  const double own = predict(train, "--devices 1,8").back()["step_seconds"];
  const double shared =
      predict(train + " --sync-batch-norm", "--devices 1,8").back()["step_seconds"];
  EXPECT_GT(shared, own + 20 * 2 * 5e-6);  // 40 of them, each a launch and more
}

}  // namespace
}  // namespace lockstep::testing
