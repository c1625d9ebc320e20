// lockstep train and compare of GPTs on texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

const std::string kSmall = "--dataset embedded-text --model gpt:1-2-16-8 --steps 4 ";

TEST(GptTraining, EveryWayHasTheSameBitsAndValidationLoss) {
  const auto result = [](const std::string& flags) {
    const TempFolder folder;
    const std::string out =
        run_well("train --bitwise --batch 12 --json run.json " + kSmall + flags, folder.path());
    EXPECT_THAT(out, HasSubstr("a token takes "));
    const nlohmann::json row = read_json(folder / "run.json")["rows"][0];
    EXPECT_FALSE(row.contains("test_accuracy"));
    return std::pair(weights_digest(out), row["epoch_validation_loss"][0].get<double>());
  };
  const auto [digest, loss] = result("");
  for (const char* flags : {"--parallel dp --devices 2", "--parallel ddp --devices 4",
                            "--parallel ddp --devices 2 --ranks processes"}) {
    const auto [its_digest, its_loss] = result(flags);
    EXPECT_EQ(its_digest, digest) << flags;
    EXPECT_NEAR(its_loss, loss, 1e-5) << flags;  // the ranks add up a part of the tokens each
  }
}

TEST(GptTraining, IsJudgedAndItsRunFileCanBeRead) {
  const TempFolder folder;
  const std::string out = run_well(
      "compare --batch 10 --modes dp,ddp --devices 1,3 --json run.json " + kSmall, folder.path());
  EXPECT_THAT(out, HasSubstr("verdict: every row trains as one device does"));
  run_well("explain run.json", folder.path());
  const nlohmann::json layers = read_json(folder / "run.json")["workload"]["layers"];
  ASSERT_EQ(layers.size(), 9u);
  EXPECT_EQ(layers[3]["name"], "transformer.h.0.attn.c_attn");
}

// Four times eight rows are 32, and ranks all-reduce once a step.
TEST(GptTraining, MicroBatchesAddUpToTheWholeBatch) {
  const TempFolder folder;
  const auto rows = [&](const std::string& flags) {
    run_well(
        "compare --batch 32 --modes dp,ddp --devices 1,2 --optimizer "
        "adamw --json run.json " +
            kSmall + flags,
        folder.path());
    return read_json(folder / "run.json")["rows"];
  };
  const nlohmann::json whole = rows("");
  const nlohmann::json cut = rows("--accumulate 4");
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_NEAR(cut[i]["final_loss"], whole[i]["final_loss"], 1e-5) << i;
    EXPECT_NEAR(cut[i]["validation_loss"], whole[i]["validation_loss"], 1e-5) << i;
    if (whole[i]["mode"] != "ddp") continue;  // dp copies the model for each micro-batch
    EXPECT_EQ(cut[i]["comm_bytes_per_device_per_step"], whole[i]["comm_bytes_per_device_per_step"]);
  }
  const Outcome predicted =
      run_command("predict --workload run.json --topology dgx-a100", folder.path());
  EXPECT_THAT(predicted.err, HasSubstr("is of a run with --accumulate 4"));
}

TEST(GptTraining, AdamwDecaysMatricesAndSaysHowMany) {
  const std::string adamw = run_well("train --optimizer adamw " + kSmall);
  EXPECT_THAT(adamw, HasSubstr("num decayed parameter tensors: 6, with 4,224 parameters\n"
                               "num non-decayed parameter tensors: 10, with 240 parameters\n"));
}

TEST(GptTraining, PrintsALineOfLossRateNormAndSpeedForSomeSteps) {
  const std::string line =
      R"(step +[0-9]+ \| loss [0-9]\.[0-9]{5} \| lr 1\.00e-03 \| norm [0-9.]+ \| [0-9.]+ [mu]?s \| [0-9]+ tok/s)";
  for (const char* flags : {"", "--parallel ddp --devices 2"}) {
    const std::string out = run_well(
        "train --dataset embedded-text --model gpt:1-2-16-8 --batch 12 "
        "--optimizer adamw --steps 60 " +
        std::string(flags));
    std::vector<std::string> steps;
    for (const std::string& text : lines_of(out)) {
      if (!text.starts_with("step ")) continue;
      EXPECT_TRUE(std::regex_match(text, std::regex(line))) << text;
      steps.push_back(text.substr(0, 10));
    }
    EXPECT_EQ(steps.size(), 13u) << flags;  // each fifth, and the last
    EXPECT_EQ(steps.front(), "step     0");
    EXPECT_EQ(steps.back(), "step    59");
  }
}

TEST(GptTraining, Bfloat16ActivationsAreJudgedByTheLimitOfFloat32) {
  const TempFolder folder;
  const std::string out = run_well(
      "compare --precision bf16 --batch 10 --modes dp,ddp,zero3,pipeline --devices 1,2 "
      "--json run.json " +
          kSmall,
      folder.path());
  EXPECT_THAT(out, HasSubstr("verdict: every row trains as one device does"));
  EXPECT_THAT(out, HasSubstr("(limit 1e-05)"));
  EXPECT_EQ(read_json(folder / "run.json")["config"]["precision"], "bf16");
  const auto digest = [&](const std::string& flags) {
    return weights_digest(run_well("train " + kSmall + flags));
  };
  EXPECT_NE(digest("--precision bf16"), digest(""));
  EXPECT_EQ(digest("--precision fp32"), digest(""));
}

TEST(GptTraining, MistakesAreNamed) {
  const TempFolder folder;
  write_text(folder / "short.txt", "too short");
  write_text(folder / "words.txt", std::string(200, 'a') + "b\xff");
  run_well("train --save gpt.safetensors " + kSmall, folder.path());
  const auto expect_failure = [&](const std::string& flags, const std::string& text) {
    const Outcome outcome = run_command("train --steps 1 " + flags, folder.path());
    EXPECT_NE(outcome.exit_code, 0) << flags;
    EXPECT_THAT(outcome.err, HasSubstr(text)) << flags;
  };
  expect_failure("--dataset text:short.txt", "'short.txt' has 8 tokens to train on");
  expect_failure("--dataset text:words.txt", "is not UTF-8 text: the byte at offset 201");
  expect_failure("--dataset embedded-text --model gpt:1-3-16-8", "3 heads do not divide 16");
  expect_failure("--dataset embedded-text --model mlp:64-61", "embedded-text is a text; use gpt:");
  expect_failure("--model gpt:1-2-16-8", "takes text, but digits has rows of 64 numbers");
  expect_failure("--dataset embedded-text --model gpt:2-2-16-8 --init gpt.safetensors",
                 "the weights are those of 1 layers, and the model has 2");
  expect_failure("--dataset embedded-text --model gpt:1-2-32-8 --init gpt.safetensors",
                 "copying a param with shape torch.Size([61, 16]) from checkpoint, the shape in "
                 "current model is torch.Size([61, 32])");
}

}  // namespace
}  // namespace lockstep::testing
