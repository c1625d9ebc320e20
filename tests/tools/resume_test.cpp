// Runs that go on from a checkpoint, and checkpoints that no run may go on from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <set>

#include "engine/checkpoint/safetensors.h"
#include "tests/support/temp_folder.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Resume : public ::testing::Test {
 protected:
  Outcome train(const std::string& flags) {
    const bool has_model = flags.find("--model") != std::string::npos;
    return run_command((has_model ? "train " : "train --model mlp:64-8-10 ") + flags,
                       folder_.path());
  }
  // Ends after so many steps, with a checkpoint at every fifth and at the last.
  void train_to(int steps, const std::string& flags = "") {
    expect_success(train("--checkpoint-dir kept --checkpoint-every 5 --steps " +
                         std::to_string(steps) + " " + flags));
  }
  void expect_resume_rejected(int exit_code, const std::vector<std::string>& phrases,
                              const std::string& flags = "--steps 20") {
    expect_rejected(train("--checkpoint-dir kept --resume auto " + flags), exit_code, phrases);
  }
  std::set<std::string> kept() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_ / "kept")) {
      names.insert(entry.path().filename());
    }
    return names;
  }

  TempFolder folder_;
};

TEST_F(Resume, EndsWithTheWeightsOfAnUndisturbedRun) {
  for (const std::string flags :
       {"", "--parallel dp --devices 3", "--parallel ddp --devices 4 --optimizer adamw",
        "--parallel ddp --devices 2 --ranks processes",
        "--parallel pipeline --stages 2 --optimizer adamw --clip-norm 0.1",
        "--bitwise --parallel ddp --devices 2",
        "--dataset embedded-text --model gpt:1-2-16-16 --optimizer adamw --batch 512",
        "--parallel ddp --devices 3 --shard parameters --optimizer adamw",
        "--parallel tensor --devices 2 --optimizer adamw --clip-norm 0.1",
        "--sampler torch --parallel ddp --devices 2 --clip-norm 0.1 --schedule step:7"}) {
    fs::remove_all(folder_ / "kept");
    const Outcome undisturbed = train("--steps 40 " + flags);
    train_to(27, flags);  // in the second epoch, which has 24 steps
    const Outcome resumed = train("--checkpoint-dir kept --resume auto --steps 40 " + flags);
    expect_success(resumed);
    EXPECT_THAT(resumed.out, HasSubstr("resumed after step 27 of 40")) << flags;
    EXPECT_EQ(weights_digest(resumed.out), weights_digest(undisturbed.out)) << flags;
  }
}

TEST_F(Resume, NamesTheOptimizersTensorsByTheirParameters) {
  train_to(1, "--dataset embedded-text --model gpt:1-2-16-16 --optimizer adamw --batch 512");
  const auto read = [&](const char* file) {
    return checkpoint::read_safetensors(folder_ / "kept" / "step-00000001" / file);
  };
  const checkpoint::ArrayFile model = read("model.safetensors");
  const checkpoint::ArrayFile optimizer = read("optimizer.safetensors");
  EXPECT_EQ(optimizer.arrays.size(), 2 * model.arrays.size());
  for (const checkpoint::NamedArray& parameter : model.arrays) {
    const checkpoint::NamedArray* const moment = optimizer.find("exp_avg_sq." + parameter.name);
    ASSERT_NE(moment, nullptr) << parameter.name;
    EXPECT_EQ(moment->shape, parameter.shape) << parameter.name;
  }
}

TEST_F(Resume, ShardsGoOnWithAnotherNumberOfRanksAndAtAnotherDepth) {
  const std::string flags = "--dtype float64 --optimizer adamw --parallel ddp ";
  const Outcome undisturbed = train("--steps 40 --save one.st " + flags + "--devices 1");
  train_to(27, flags + "--devices 4 --shard parameters");
  for (const char* how : {"--devices 4 --shard parameters", "--devices 3 --shard optimizer",
                          "--devices 2 --shard gradients", "--devices 2"}) {
    expect_success(train("--resume kept --steps 40 --save two.st " + flags + how));
    const checkpoint::ArrayFile one = checkpoint::read_safetensors(folder_ / "one.st");
    const checkpoint::ArrayFile two = checkpoint::read_safetensors(folder_ / "two.st");
    ASSERT_EQ(one.arrays.size(), two.arrays.size());
    for (std::size_t i = 0; i < one.arrays.size(); ++i) {
      const auto* const a = reinterpret_cast<const double*>(one.arrays[i].bytes.data());
      const auto* const b = reinterpret_cast<const double*>(two.arrays[i].bytes.data());
      for (std::size_t k = 0; k < one.arrays[i].bytes.size() / sizeof(double); ++k) {
        ASSERT_NEAR(a[k], b[k], 1e-9) << how;
      }
    }
  }
}

TEST_F(Resume, KeepsTheNewestAndRemovesWhatAKilledRunLeft) {
  fs::create_directories(folder_ / "kept" / ".unfinished-step-00000003");
  train_to(22, "--keep 2");
  EXPECT_THAT(kept(), ElementsAre("step-00000020", "step-00000022"));
  fs::create_directories(folder_ / "kept" / "step-00000001");  // not a checkpoint
  fs::create_directories(folder_ / "kept" / "step-notes");
  const Outcome again = train("--checkpoint-dir kept --resume auto --steps 23");
  EXPECT_THAT(kept(), ElementsAre("step-00000001", "step-00000020", "step-00000022",
                                  "step-00000023", "step-notes"));
  EXPECT_THAT(again.out, HasSubstr("test accuracy"));
  EXPECT_THAT(train("--resume kept/step-00000020 --steps 22").out,
              HasSubstr("resumed after step 20 of 22"));
}

TEST_F(Resume, BeginsWhereThereIsNoCheckpointYet) {
  const Outcome outcome = train("--checkpoint-dir kept --resume auto --steps 5");
  expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("no checkpoint in kept yet: starting from step 0"));
}

TEST_F(Resume, ANewRunInAnOldFolderIsRefused) {
  train_to(10);
  expect_rejected(train("--checkpoint-dir kept --steps 10 --lr 0.5"), 2,
                  {"--checkpoint-dir", "'kept' holds checkpoints of another run, up to step 10",
                   "--resume auto"});
}

TEST_F(Resume, WithOtherSettingsNamesThem) {
  train_to(5);
  expect_resume_rejected(
      2, {"made with batch 64 and not 32, seed 0 and not 1;", "--resume-with-changes"},
      "--steps 20 --batch 32 --seed 1");
  expect_resume_rejected(2, {"has 5 steps behind it, and this run ends after 4"}, "--steps 4");
  expect_success(
      train("--checkpoint-dir kept --resume auto --resume-with-changes --lr 0.01 --steps 20"));
  expect_rejected(run_command("train --resume kept --model mlp:64-9-10 --steps 20", folder_.path()),
                  2, {"model \"mlp:64-8-10\" and not \"mlp:64-9-10\""});
}

TEST_F(Resume, FromADamagedCheckpointNamesTheFile) {
  train_to(5);
  const fs::path checkpoint = folder_ / "kept" / "step-00000005";
  const fs::path model = checkpoint / "model.safetensors";
  const std::string whole = read_text(model);
  std::string flipped = whole;
  flipped[flipped.size() - 9] ^= 1;
  for (const std::string& text : {flipped, whole.substr(0, whole.size() / 2), std::string()}) {
    write_text(model, text);
    expect_resume_rejected(1, {"step-00000005/model.safetensors is damaged", "SHA-256"});
  }
  fs::remove(model);
  expect_resume_rejected(1, {"model.safetensors", "No such file", "no other checkpoint is whole"});
  write_text(model, whole);
  const fs::path state = checkpoint / "state.json";
  const std::string text = read_text(state);
  write_text(state, text.substr(0, text.size() / 2));
  expect_resume_rejected(1, {"state.json is not the state of a checkpoint, or is damaged"});
  std::string newer = text;
  newer.replace(newer.find("checkpoint/1"), 12, "checkpoint/2");
  write_text(state, newer);
  expect_resume_rejected(1, {"has schema lockstep.checkpoint/2", "use the newer program"});
  std::string without = text;
  without.replace(without.find("\"bucket_order\""), 14, "\"other\"");
  write_text(state, without);
  expect_resume_rejected(1, {"state.json lacks a field"});
}

TEST_F(Resume, FromADamagedCheckpointSaysHowToGoOn) {
  const auto damage = [&](const std::string& file, const std::optional<std::string>& content) {
    fs::remove(folder_ / "kept" / file);
    if (content) write_text(folder_ / "kept" / file, *content);
  };
  train_to(15);
  damage("step-00000015/state.json", "");
  expect_resume_rejected(1, {"kept/step-00000015/state.json",
                             "remove that folder to resume from an "
                             "older checkpoint, kept/step-00000010"});
  expect_rejected(train("--resume kept/step-00000015 --steps 20"), 1,
                  {"resume from another one: --resume kept/step-00000010"});
  damage("step-00000015/state.json", std::nullopt);
  expect_resume_rejected(1, {"kept/step-00000015/state.json is damaged: No such file",
                             "an older checkpoint, kept/step-00000010"});
  damage("step-00000010/optimizer.safetensors", std::nullopt);
  expect_resume_rejected(1, {"remove that folder and kept/step-00000010 to resume from an older "
                             "checkpoint, kept/step-00000005"});
  damage("step-00000005/optimizer.safetensors", "short");
  expect_resume_rejected(1, {"no other checkpoint is whole: remove all of them"});
  EXPECT_EQ(kept().size(), 3u);
}

TEST_F(Resume, WithAnotherBatchSaysHowManyRowsMove) {
  train_to(10);
  const std::string flags = "--resume kept --resume-with-changes --steps 12 --batch ";
  EXPECT_THAT(train(flags + "100").out,
              HasSubstr("360 rows are skipped: step 10 begins at row 1000"));
  EXPECT_THAT(train(flags + "32").out, HasSubstr("320 rows are seen a second time: step 10"));
  EXPECT_THAT(train(flags + "64").out, ::testing::Not(HasSubstr("rows are")));
  EXPECT_THAT(train(flags + "64 --seed 1").out, HasSubstr("seed differs"));
}

TEST_F(Resume, WithAChangeThatCannotBeNamesIt) {
  train_to(10);
  const auto expect_named = [&](const std::string& change, const std::string& words) {
    const std::string flags = "--steps 20 --resume-with-changes " + change;
    expect_resume_rejected(2, {"[--resume] kept/step-00000010 was made with " + words}, flags);
  };
  expect_named("--momentum 0", "momentum 0.9 and not 0.0, and its optimizer kept 1 tensor");
  expect_named("--optimizer adamw", "optimizer \"sgd\" and not \"adamw\", and its optimizer");
  expect_named("--model mlp:64-9-10", "model \"mlp:64-8-10\" and not \"mlp:64-9-10\", so its");
  expect_named("--model lenet", "model \"mlp:64-8-10\" and not \"lenet\", so its weights");
  expect_success(train("--resume kept --resume-with-changes --steps 12 --momentum 0.5"));
}

// A text whose file changes between the runs.
class ResumeOnAText : public Resume {
 protected:
  static constexpr const char* kText =
      "--dataset text:p.txt --model gpt:1-1-4-4 --optimizer adamw --batch 4 ";

  void write_repeated(const std::string& text) {
    std::string whole;
    for (int i = 0; i < 20; ++i) whole += text;
    write_text(folder_ / "p.txt", whole);
  }
  void expect_refused(const std::vector<std::string>& phrases, const std::string& flags = "") {
    expect_resume_rejected(2, phrases, kText + std::string("--steps 4 ") + flags);
    EXPECT_THAT(kept(), ElementsAre("step-00000002"));
  }
};

TEST_F(ResumeOnAText, OtherContentsAreRefused) {
  write_repeated("abab");
  train_to(2, kText);
  write_repeated("baba");
  expect_refused({"made with other contents of text:p.txt, SHA-256", "--resume-with-changes"});
  write_repeated("xyxy");
  for (const char* flags : {"", "--resume-with-changes"}) {
    expect_refused({"[--resume] 'kept/step-00000002' was trained on 2 characters 'ab'",
                    "'p.txt' has 2 characters 'xy'"},
                   flags);
  }
  write_repeated("abab");
  expect_success(train(kText + std::string("--checkpoint-dir kept --resume auto --steps 4")));
}

TEST_F(ResumeOnAText, AMovedFileIsAChangeThatMovesNoRows) {
  write_repeated("abab");
  train_to(2, kText);
  fs::rename(folder_ / "p.txt", folder_ / "moved.txt");
  const std::string flags =
      "--dataset text:moved.txt --model gpt:1-1-4-4 --optimizer adamw --batch 4 --steps 4 ";
  expect_resume_rejected(2, {"dataset \"text:p.txt\" and not \"text:moved.txt\";"}, flags);
  const Outcome outcome =
      train("--checkpoint-dir kept --resume auto --resume-with-changes " + flags);
  expect_success(outcome);
  EXPECT_THAT(outcome.out, ::testing::Not(HasSubstr("rows are")));
}

TEST_F(ResumeOnAText, ItsWeightsAreEnoughForASample) {
  write_repeated("abab");
  train_to(2, kText);
  const std::string out = run_well(
      "sample --init kept/step-00000002/model.safetensors --prompt a --tokens 3", folder_.path());
  EXPECT_THAT(out, ::testing::MatchesRegex("a[ab][ab][ab]\n"));
}

}  // namespace
}  // namespace lockstep::testing
