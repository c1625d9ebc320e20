// --init and --save: weights that come from files and go to them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/checkpoint/safetensors.h"
#include "engine/nn/models.h"
#include "engine/nn/state_dict.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

class WeightsFile : public ::testing::Test {
 protected:
  void SetUp() override { write_text(folder_ / "kept.safetensors", "old content"); }

  // The mistake is found early: what stands at --save stays.
  void expect_init_rejected(const std::vector<std::string>& phrases,
                            const std::string& flags = "") {
    expect_rejected(run_lockstep(words("train --init init.safetensors --save kept.safetensors "
                                       "--log kept.jsonl --model mlp:64-8-10 --steps 2 " +
                                       flags),
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
  const Outcome outcome = run_lockstep(words(flags + "a.safetensors"), folder_.path());
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
  const Outcome unchanged = run_lockstep(words(flags + "b.safetensors"), folder_.path());
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
  expect_success(run_lockstep(words("train --save kept.safetensors --steps 2 --dtype float64"),
                              folder_.path()));
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
  const Outcome at_once = run_lockstep(words(common + "--epochs 2"), folder_.path());
  const Outcome first = run_lockstep(words(common + "--epochs 1 --save half.st"), folder_.path());
  const Outcome second = run_lockstep(words(common + "--epochs 1 --init half.st"), folder_.path());
  expect_success(second);
  EXPECT_NE(weights_digest(first), weights_digest(at_once));
  EXPECT_EQ(weights_digest(second), weights_digest(at_once));
}

}  // namespace
}  // namespace lockstep::testing
