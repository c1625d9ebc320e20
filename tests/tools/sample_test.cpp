// lockstep sample: text of trained GPTs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/checkpoint/safetensors.h"
#include "engine/nn/state_dict.h"
#include "tests/support/tiny_vocabulary.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

class Sample : public ::testing::Test {
 protected:
  static constexpr const char* kTrain =
      "train --dataset embedded-text --model gpt:1-2-16-8 --optimizer adamw --lr 0.01 --batch 16 "
      "--steps 60 --save gpt.safetensors";

  void train(const std::string& flags = "") {
    run_well(std::string(kTrain) + flags, folder_.path());
  }

  std::string sample(const std::string& flags, const std::string& prompt = "First Citizen:") {
    const Outcome outcome = run(flags, prompt);
    expect_success(outcome);
    return outcome.out;
  }

  void expect_failure(const std::string& flags, const std::string& words,
                      const std::string& prompt = "First") {
    const Outcome outcome = run(flags, prompt);
    EXPECT_NE(outcome.exit_code, 0) << flags;
    EXPECT_EQ(outcome.out, "") << flags;
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
    EXPECT_THAT(outcome.err, ::testing::HasSubstr(words)) << flags;
  }

  Outcome run(const std::string& flags, const std::string& prompt) {
    Arguments arguments = words("sample --tokens 30 " + flags);
    arguments.insert(arguments.end(), {"--prompt", prompt});
    return run_lockstep(arguments, folder_.path());
  }

  // The same weights as a file from elsewhere has them.
  void save_without_metadata() {
    nn::save_weights(folder_ / "bare.safetensors", nn::load_weights(folder_ / "gpt.safetensors"));
  }

  TempFolder folder_;
};

TEST_F(Sample, WritesThePromptAndWhatFollowsIt) {
  train();
  const std::string text = sample("--init gpt.safetensors --seed 3");
  EXPECT_EQ(text.size(), 14u + 30 + 1);
  EXPECT_THAT(text, ::testing::StartsWith("First Citizen:"));
  EXPECT_EQ(text.back(), '\n');
  EXPECT_EQ(sample("--init gpt.safetensors --seed 3"), text);
  EXPECT_NE(sample("--init gpt.safetensors --seed 4"), text);
}

TEST_F(Sample, AndTrainTakeAnIndexOfSeveralFiles) {
  train();
  const checkpoint::ArrayFile whole = checkpoint::read_safetensors(folder_ / "gpt.safetensors");
  nlohmann::json index{{"metadata", {{"total_size", 1}}}};
  for (std::size_t part = 0; part < 2; ++part) {
    const std::string name =
        part == 0 ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors";
    std::vector<checkpoint::NamedArrayView> arrays;
    for (std::size_t i = part; i < whole.arrays.size(); i += 2) {
      const checkpoint::NamedArray& array = whole.arrays[i];
      arrays.push_back({array.name, array.dtype, array.shape, array.bytes});
      index["weight_map"][array.name] = name;
    }
    checkpoint::write_safetensors(folder_ / name, arrays, whole.metadata);
  }
  write_text(folder_ / "model.safetensors.index.json", index.dump());
  EXPECT_EQ(sample("--init model.safetensors.index.json"), sample("--init gpt.safetensors"));
  run_well(
      "train --dataset embedded-text --model gpt:1-2-16-8 --steps 1 --lr 0 --batch 16 "
      "--init model.safetensors.index.json --save copy.safetensors",
      folder_.path());
  EXPECT_EQ(sample("--init copy.safetensors"), sample("--init gpt.safetensors"));
  std::filesystem::remove(folder_ / "model-00002-of-00002.safetensors");
  expect_failure("--init model.safetensors.index.json",
                 "'model-00002-of-00002.safetensors', which 'model.safetensors.index.json' lists");
}

TEST_F(Sample, TheLikeliestTokenIsThatOfTemperatureZeroAndOfTopOne) {
  train();
  const std::string likeliest = sample("--init gpt.safetensors --temperature 0");
  EXPECT_EQ(sample("--init gpt.safetensors --top-k 1 --seed 5"), likeliest);
  EXPECT_EQ(sample("--init gpt.safetensors --temperature 1e-4 --seed 6"), likeliest);
  EXPECT_NE(sample("--init gpt.safetensors --temperature 5 --top-k 10000"), likeliest);
}

TEST_F(Sample, TheFileSaysItsModelAndItsCharacters) {
  train();
  const checkpoint::Metadata metadata = checkpoint::read_metadata(folder_ / "gpt.safetensors");
  EXPECT_EQ(metadata.at("format"), "pt");
  EXPECT_EQ(metadata.at("lockstep.model"), "gpt:1-2-16-8");
  EXPECT_THAT(metadata.at("lockstep.characters"), ::testing::StartsWith("\n !"));
  save_without_metadata();
  EXPECT_EQ(sample("--init bare.safetensors --model gpt:1-2-16-8 --dataset embedded-text"),
            sample("--init gpt.safetensors"));
}

TEST_F(Sample, Gpt2sTokensComeFromAVocabulary) {
  TinyVocabulary({"t h", "th e", "\u0120 the"}).write(folder_.path());
  train(" --vocab .");
  EXPECT_FALSE(
      checkpoint::read_metadata(folder_ / "gpt.safetensors").contains("lockstep.characters"));
  EXPECT_THAT(sample("--init gpt.safetensors --vocab . --top-k 5", "the \u20ac"),
              ::testing::StartsWith("the \u20ac"));
  expect_failure("--init gpt.safetensors", "doesn't say which characters its tokens are; give");
}

TEST_F(Sample, MistakesAreNamed) {
  train();
  save_without_metadata();
  expect_failure(
      "--init gpt.safetensors",
      "'--prompt' has the character '\u20ac' (U+20AC), which is not one of the 61 that the "
      "model knows",
      "A \u20ac");
  expect_failure("--init gpt.safetensors", "'--prompt' is not UTF-8 text", "a\xff");
  expect_failure("--init bare.safetensors", "'bare.safetensors' doesn't say which model");
  expect_failure("--init bare.safetensors --model gpt:1-2-16-8", "doesn't say which characters");
  expect_failure("--init gpt.safetensors --model mlp:4-2", "'mlp:4-2' is not a text model");
  expect_failure("--init gpt.safetensors --model gpt:2-2-16-8",
                 "'gpt.safetensors' does not fit --model gpt:2-2-16-8: [load_state_dict] the "
                 "weights are those of 1 layers, and the model has 2");
  expect_failure("--init gpt.safetensors --model gpt:1-4-16-8",
                 "'gpt.safetensors' says that its weights are of --model gpt:1-2-16-8");
  expect_failure("--init gpt.safetensors --dataset digits", "'digits' has no characters");
  expect_failure("--init gpt.safetensors --temperature -1", "[--temperature]");
  expect_failure("--init gpt.safetensors --top-k 0", "--top-k");
  expect_failure("--init missing.safetensors", "missing.safetensors");
  TinyVocabulary({"t h"}).write(folder_.path());
  expect_failure("--init gpt.safetensors --vocab .", "'.' has a vocabulary of 257 tokens");
  expect_failure("--init bare.safetensors --model gpt:1-2-16-8 --vocab .",
                 "its weights are for 61 tokens, but the vocabulary has 257");
  write_text(folder_ / "xy.txt", std::string(100, 'x') + "y");
  expect_failure("--init gpt.safetensors --dataset text:xy.txt",
                 "'xy.txt' has 2 characters 'xy', without");
}

}  // namespace
}  // namespace lockstep::testing
