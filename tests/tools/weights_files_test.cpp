// --init and --save: weights that come from files and go to them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "engine/checkpoint/safetensors.h"
#include "engine/nn/models.h"
#include "engine/nn/state_dict.h"
#include "tests/support/tiny_vocabulary.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

class WeightsFile : public ::testing::Test {
 protected:
  void SetUp() override { write_text(folder_ / "kept.safetensors", "old content"); }

  // The mistake is found early: what stands at --save stays.
  void expect_init_rejected(const std::vector<std::string>& phrases,
                            const std::string& flags = "") {
    expect_rejected(run_command("train --init init.safetensors --save kept.safetensors "
                                "--log kept.jsonl --model mlp:64-8-10 --steps 2 " +
                                    flags,
                                folder_.path()),
                    1, phrases);
    EXPECT_EQ(read_text(folder_ / "kept.safetensors"), "old content");
    EXPECT_FALSE(std::filesystem::exists(folder_ / "kept.jsonl"));
  }

  void save_init(const std::string& model) {
    nn::save_weights(folder_ / "init.safetensors", *nn::make_mlp(model, 5));
  }

  TempFolder folder_;
};

TEST_F(WeightsFile, ThatIsMissingIsNamed) {
  expect_init_rejected({"init.safetensors", "No such file"});
}

TEST_F(WeightsFile, OfAWrappedModuleIsExplainedAndReadOnRequest) {
  const auto model = nn::make_mlp("mlp:64-8-10", 5);
  nn::save_weights(folder_ / "init.safetensors", nn::state_dict(*model, "_orig_mod.module."));
  expect_init_rejected({"[--init]", "Missing key(s) in state_dict: \"0.weight\"",
                        "Every name in the state begins with \"_orig_mod.module.\"",
                        "--strip-prefix"});
  const std::string flags =
      "train --model mlp:64-8-10 --init init.safetensors --strip-prefix --lr 0 --steps 1 --save ";
  const Outcome outcome = run_command(flags + "a.safetensors", folder_.path());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err,
            "lockstep: [--strip-prefix] took \"_orig_mod.module.\" off the names in "
            "init.safetensors\n");
  const nn::StateDict expected = nn::state_dict(*model);
  for (const auto& [name, tensor] : nn::load_weights(folder_ / "a.safetensors")) {
    const auto same =
        std::ranges::find(expected, name, [](const auto& entry) { return entry.first; });
    ASSERT_NE(same, expected.end()) << name;
    EXPECT_EQ(tensor.to_vector<float>(), same->second.to_vector<float>()) << name;
  }
  nn::save_weights(folder_ / "init.safetensors", *model);
  const Outcome unchanged = run_command(flags + "b.safetensors", folder_.path());
  EXPECT_EQ(unchanged.exit_code, 0);
  EXPECT_EQ(unchanged.err, "") << "the names fit as they are";
}

TEST_F(WeightsFile, ThatTorchSaveWroteIsNamedWithItsConversion) {
  write_text(folder_ / "init.safetensors",
             std::string("\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", 22));
  expect_init_rejected({"init.safetensors' was written by PyTorch's torch.save", "python3 -c"});
}

TEST_F(WeightsFile, OfOtherShapesShowsBoth) {
  save_init("mlp:64-9-10");
  expect_init_rejected({"[--init]", "size mismatch for 0.weight", "[9, 64]", "[8, 64]"});
  expect_init_rejected({"[--init]", "size mismatch for 0.weight"}, "--devices 2 --parallel ddp");
}

TEST_F(WeightsFile, IsReplacedByTheNewWeights) {
  run_well("train --save kept.safetensors --steps 2 --dtype float64", folder_.path());
  const checkpoint::ArrayFile file = checkpoint::read_safetensors(folder_ / "kept.safetensors");
  ASSERT_EQ(file.arrays.size(), 4u);
  ASSERT_NE(file.find("0.weight"), nullptr);
  EXPECT_EQ(file.find("0.weight")->shape, (Shape{256, 64}));
  EXPECT_EQ(file.find("2.bias")->dtype, DType::float64);
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    ++files;
  }
  EXPECT_EQ(files, 1u) << "no temporary file stays";
}

TEST_F(WeightsFile, ContinuesAsIfTrainingHadNotStopped) {
  const std::string common = "train --no-shuffle --momentum 0 --batch 100 ";
  const Outcome at_once = run_command(common + "--epochs 2", folder_.path());
  const Outcome first = run_command(common + "--epochs 1 --save half.st", folder_.path());
  const std::string second = run_well(common + "--epochs 1 --init half.st", folder_.path());
  EXPECT_NE(weights_digest(first.out), weights_digest(at_once.out));
  EXPECT_EQ(weights_digest(second), weights_digest(at_once.out));
}

// Weights of one shape that mean something else.
class WeightsOfATextModel : public WeightsFile {
 protected:
  static constexpr const char* kGpt = " --model gpt:1-1-4-4 --batch 4 ";

  void SetUp() override {
    WeightsFile::SetUp();
    write_repeated("ab.txt", "abab");
    expect_success(lockstep("train --dataset text:ab.txt --steps 2 --save init.safetensors" +
                            std::string(kGpt)));
  }
  void write_repeated(const std::string& name, const std::string& text) {
    std::string whole;
    for (int i = 0; i < 20; ++i) whole += text;
    write_text(folder_ / name, whole);
  }
  Outcome lockstep(const std::string& command) { return run_command(command, folder_.path()); }
  void expect_refused(const std::string& text, const std::vector<std::string>& phrases) {
    write_repeated("other.txt", text);
    expect_init_rejected(phrases, "--dataset text:other.txt");
  }
  void expect_init_rejected(const std::vector<std::string>& phrases, const std::string& flags) {
    const bool has_model = flags.find("--model") != std::string::npos;
    expect_rejected(lockstep("train --steps 1 --init init.safetensors --save kept.safetensors " +
                             flags + (has_model ? "" : kGpt)),
                    1, phrases);
    EXPECT_EQ(read_text(folder_ / "kept.safetensors"), "old content");
  }
  // The weights with other names or rows, as a file from elsewhere has them.
  void rewrite(const std::function<void(nn::StateDict&)>& change) {
    nn::StateDict state = nn::load_weights(folder_ / "init.safetensors");
    change(state);
    nn::save_weights(folder_ / "init.safetensors", state);
  }
};

TEST_F(WeightsOfATextModel, AreRefusedForATextOfOtherCharacters) {
  expect_refused("xyxy", {"[--init] 'init.safetensors' was trained on 2 characters 'ab'",
                          "'other.txt' has 2 characters 'xy'", "use a text with the same"});
  expect_refused("abcabc", {"2 characters 'ab'", "3 characters 'abc', with 'c' besides"});
  expect_refused("aaaa", {"2 characters 'ab'", "1 character 'a', without 'b'"});
  std::string long_text;
  for (char c = '!'; c <= '~'; ++c) long_text += c;
  expect_refused(long_text, {"94 characters '!\"#", "...'"});
  const Outcome same =
      lockstep("train --dataset text:ab.txt --steps 1 --init init.safetensors" + std::string(kGpt));
  expect_success(same);
}

TEST_F(WeightsOfATextModel, AreRefusedForAnotherVocabularyOrModel) {
  TinyVocabulary({"a b"}).write(folder_.path());
  expect_init_rejected({"2 characters 'ab'", "'ab.txt' has a vocabulary of 257 tokens"},
                       "--dataset text:ab.txt --vocab .");
  expect_init_rejected(
      {"'init.safetensors' says that its weights are of --model gpt:1-1-4-4", "gpt:1-2-4-4"},
      "--dataset text:ab.txt --model gpt:1-2-4-4 --batch 4");
  const std::string with_vocab =
      "train --dataset text:ab.txt --vocab . --steps 1 --model gpt:1-1-4-4 ";
  expect_success(lockstep(with_vocab + "--save init.safetensors"));
  expect_success(lockstep(with_vocab + "--init init.safetensors"));
  TinyVocabulary({"b a"}).write(folder_.path());
  expect_init_rejected({"was trained on a vocabulary of 257 tokens, CRC-32"},
                       "--dataset text:ab.txt --vocab .");
  expect_init_rejected({"was trained on a vocabulary of 257 tokens", "2 characters 'ab'"},
                       "--dataset text:ab.txt");
}

TEST_F(WeightsOfATextModel, MayHaveATableWithPadding) {
  const auto with_rows = [&](std::size_t rows) {
    rewrite([rows](nn::StateDict& state) {
      const auto table =
          std::ranges::find(state, "transformer.wte.weight", &nn::StateDict::value_type::first);
      table->second = Tensor::zeros({rows, 4}, DType::float32, Device{});
    });
    return lockstep(
        "train --dataset text:ab.txt --steps 1 --init init.safetensors --save out.safetensors"
        " --checkpoint-dir kept" +
        std::string(kGpt));
  };
  const Outcome padded = with_rows(8);
  EXPECT_EQ(padded.exit_code, 0) << padded.err;
  EXPECT_THAT(padded.err, ::testing::HasSubstr("the file's table has 8 rows for 2 tokens"));
  const auto written = checkpoint::read_safetensors(folder_ / "out.safetensors");
  EXPECT_EQ(written.find("transformer.wte.weight")->shape, (Shape{8, 4}));
  const Outcome resumed =
      lockstep("train --dataset text:ab.txt --steps 2 --checkpoint-dir kept --resume auto" +
               std::string(kGpt));
  expect_success(resumed);
  expect_success(lockstep("sample --init out.safetensors --prompt a --tokens 2"));
  expect_rejected(with_rows(3), 1, {"its weights are for 3 tokens, but the text has 2 characters"});
}

TEST_F(WeightsOfATextModel, MayLackAllBiases) {
  const std::string train =
      "train --dataset text:ab.txt --steps 1 --lr 0 --init init.safetensors" + std::string(kGpt);
  rewrite([](nn::StateDict& state) {
    for (auto& [name, tensor] : state) {
      if (name.ends_with(".bias")) tensor.fill(0);
    }
  });
  const Outcome zeros = lockstep(train);
  expect_success(zeros);
  rewrite([](nn::StateDict& state) {
    std::erase_if(state, [](const auto& entry) { return entry.first.ends_with(".bias"); });
  });
  const Outcome without = lockstep(train);
  EXPECT_EQ(without.exit_code, 0);
  EXPECT_EQ(without.err,
            "lockstep: [--init] the weights lack 7 biases, which start at 0 and are trained\n");
  EXPECT_EQ(weights_digest(without.out), weights_digest(zeros.out));
  expect_success(lockstep(
      "sample --init init.safetensors --model gpt:1-1-4-4 --dataset text:ab.txt --prompt a"));
}

TEST_F(WeightsOfATextModel, ThatLackASingleBiasAreRefused) {
  rewrite([](nn::StateDict& state) {
    std::erase_if(state,
                  [](const auto& entry) { return entry.first == "transformer.h.0.ln_1.bias"; });
  });
  expect_init_rejected({"Missing key(s) in state_dict: \"transformer.h.0.ln_1.bias\""},
                       "--dataset text:ab.txt");
}

}  // namespace
}  // namespace lockstep::testing
