#include "tools/cli/training_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "tests/tools/run_lockstep.h"
#include "tools/cli/command.h"
#include "tools/training/placement.h"

namespace lockstep::tools {
namespace {

using ::testing::HasSubstr;
using testing::words;

// Words of a command, and where they stand.
struct Situation {
  const char* flags;
  std::vector<Mode> modes = {Mode::ddp};
  DeviceType device = DeviceType::cpu;
};

// The refusal of require_effects, or an empty text.
std::string refusal(const Situation& situation) {
  TrainingFlags flags;
  Program program("lockstep", "0", "");
  Command train = program.add_command("train", "");
  add_training_flags(train, flags);
  train.on_run([&] { flags.said = train.said_flags(); });
  EXPECT_EQ(program.parse(words(std::string("train ") + situation.flags)), "");
  try {
    require_effects({flags, situation.modes, situation.device});
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), 2);
    return error.what();
  }
  return {};
}

// A line of the table: words that it refuses, why, and words that it lets pass.
struct Row {
  const char* flag;
  Situation idle;
  const char* reason;
  Situation used;
};

const std::vector<Mode> kNoRanks = {Mode::single, Mode::data_parallel};
const std::vector<Mode> kOneRowWithRanks = {Mode::single, Mode::data_parallel, Mode::ddp};
const std::vector<Mode> kPipeline = {Mode::single, Mode::pipeline};
constexpr DeviceType kGpu = DeviceType::cuda;

// In the order of the table.
const std::vector<Row> kRows = {
    {"--stages", {"--stages 2"}, "for a pipeline", {"--stages 2", kPipeline}},
    {"--micro-batches", {"--micro-batches 2"}, "for a pipeline", {"--micro-batches 2", kPipeline}},
    {"--pipeline-schedule",
     {"--pipeline-schedule gpipe"},
     "for a pipeline",
     {"--pipeline-schedule gpipe", kPipeline}},
    {"--chunks",
     {"--chunks 2"},
     "for a pipeline",
     {"--chunks 2 --pipeline-schedule interleaved", kPipeline}},
    {"--chunks",
     {"--chunks 2", kPipeline},
     "for --pipeline-schedule interleaved",
     {"--chunks 2 --pipeline-schedule interleaved", kPipeline}},
    {"--shard", {"--shard gradients", kNoRanks}, "ranks of ddp", {"--shard gradients"}},
    {"--threads-per-device",
     {"--threads-per-device 1", {Mode::single}, kGpu},
     "these are GPUs",
     {"--threads-per-device 1"}},
    {"--matmul-precision",
     {"--matmul-precision high"},
     "the device is the CPU",
     {"--matmul-precision high", {Mode::single}, kGpu}},
    {"--matmul-precision",
     {"--matmul-precision high --dtype float64", {Mode::single}, kGpu},
     "--dtype is float64",
     {"--matmul-precision high --dtype float32", {Mode::single}, kGpu}},
    {"--precision",
     {"--precision bf16 --dtype float64"},
     "--dtype is float64",
     {"--precision bf16 --dtype float32"}},
    {"--ranks", {"--ranks threads", kNoRanks}, "ranks of ddp", {"--ranks threads"}},
    {"--comm", {"--comm own", kNoRanks}, "ranks of ddp", {"--comm own", kOneRowWithRanks}},
    {"--nccl-share-gpu",
     {"--nccl-share-gpu", kNoRanks, kGpu},
     "ranks of ddp",
     {"--nccl-share-gpu --comm nccl", kOneRowWithRanks, kGpu}},
    {"--plan", {"--plan auto", {Mode::single}}, "ranks of ddp", {"--plan ring", kOneRowWithRanks}},
    {"--transport", {"--transport thread", kNoRanks}, "ranks of ddp", {"--transport thread"}},
    {"--link", {"--link 1ms,1GB/s", kNoRanks}, "ranks of ddp", {"--link 1ms,1GB/s"}},
    {"--comm-timeout", {"--comm-timeout 9", kNoRanks}, "ranks of ddp", {"--comm-timeout 9"}},
    {"--data-dir",
     {"--data-dir data --dataset synthetic:9x4x2"},
     "needs no files",
     {"--data-dir data --dataset fashion-mnist"}},
    {"--vocab",
     {"--vocab data --dataset tokens:train.bin"},
     "makes tokens of texts",
     {"--vocab data --dataset text:input.txt"}},
    {"--momentum", {"--momentum 0.9 --optimizer adamw"}, "adamw has no", {"--momentum 0.9"}},
    {"--nesterov", {"--nesterov --optimizer adamw"}, "adamw has no momentum", {"--nesterov"}},
    {"--bucket-mib", {"--bucket-mib 1", kNoRanks}, "ranks of ddp", {"--bucket-mib 1"}},
    {"--bucket-mib", {"--bucket-mib 1 --bitwise"}, "--bitwise sums", {"--bucket-mib 1"}},
    {"--first-bucket-mib", {"--first-bucket-mib 1", kNoRanks}, "ddp", {"--first-bucket-mib 1"}},
    {"--first-bucket-mib",
     {"--first-bucket-mib 1 --bitwise"},
     "--bitwise sums",
     {"--first-bucket-mib 1"}},
};

TEST(IdleFlags, EachIsRefusedWhereItHasNoEffectAndTakenWhereItHasOne) {
  std::vector<std::string> flags;  // a flag stands there once for every reason
  for (const TrainingFlag& flag : training_flags()) {
    flags.insert(flags.end(), flag.rules.idle.size(), flag.name);
  }
  ASSERT_EQ(kRows.size(), flags.size());
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    const Row& row = kRows[i];
    EXPECT_EQ(row.flag, flags[i]);
    EXPECT_THAT(refusal(row.idle),
                ::testing::StartsWith(std::string("[") + row.flag + "] has no effect here: it "))
        << row.idle.flags;
    EXPECT_THAT(refusal(row.idle), HasSubstr(row.reason)) << row.idle.flags;
    EXPECT_EQ(refusal(row.used), "") << row.used.flags;
  }
}

TEST(IdleFlags, DefaultsThatNobodySaidAreNotRefused) {
  EXPECT_EQ(refusal({"--optimizer adamw --bitwise --dtype float64", {Mode::single}}), "");
  EXPECT_EQ(refusal({"", {Mode::single}, kGpu}), "");
}

}  // namespace
}  // namespace lockstep::tools
