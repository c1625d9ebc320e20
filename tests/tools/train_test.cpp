// lockstep train, with everything it offers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>

#include "engine/runtime/logical_device.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

std::string train(const std::string& flags) {
  return run_well("train " + flags);
}

std::string digest(const std::string& flags) {
  return weights_digest(train(flags));
}

// Undoes the wrapping at the width of a terminal.
std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

TEST(Train, PrintsDeviceWorkEpochsAccuracyAndDigest) {
  const std::string out = train("--epochs 2 --batch 100");
  std::istringstream lines(out);
  for (const char* beginning :
       {"using device: cpu:0", "mlp:64-256-10 on digits: 1500 training rows, 30 steps of 100 rows",
        "epoch 1: ", "epoch 2: ", "test accuracy: ", "weights sha256: "}) {
    std::string line;
    do {
      std::getline(lines, line);
    } while (line.starts_with("* contended: "));  // other tests run beside this one
    EXPECT_THAT(line, ::testing::StartsWith(beginning));
  }
  EXPECT_THAT(weights_digest(out), ::testing::MatchesRegex("[0-9a-f]+"));
}

TEST(Train, ANetThatNobodyNamedHasTheEndsOfTheData) {
  const nlohmann::json run = run_file_of("train --dataset synthetic:40x12x3");
  EXPECT_EQ(run["config"]["model"], "mlp:12-256-3");
}

TEST(Train, LearnsTheDigits) {
  const nlohmann::json row = run_file_of("train --epochs 8")["rows"][0];
  EXPECT_GT(row["test_accuracy"], 0.9);
  ASSERT_EQ(row["epoch_accuracy"].size(), 8U);
  EXPECT_EQ(row["epoch_accuracy"].back(), row["test_accuracy"]);
  EXPECT_LT(row["epoch_accuracy"][0], row["test_accuracy"]);
}

// The ranks judge a part of the test rows each; their weights are one device's, bit for bit.
TEST(Train, EveryWayOfTrainingFindsTheSameAccuracyAfterEachEpoch) {
  const auto accuracy = [](const std::string& flags) {
    return run_file_of("train --bitwise --epochs 3 " + flags)["rows"][0]["epoch_accuracy"];
  };
  const nlohmann::json of_one = accuracy("");
  EXPECT_EQ(of_one.size(), 3U);
  for (const char* flags : {"--parallel dp --devices 2", "--parallel ddp --devices 4",
                            "--parallel ddp --devices 2 --ranks processes"}) {
    EXPECT_EQ(accuracy(flags), of_one) << flags;
  }
}

TEST(Train, BitwiseGivesOneDigestForEveryNumberOfDevicesAndWay) {
  const std::string flags = "--bitwise --batch 61 --steps 26 ";  // the last batch has 36 rows
  const std::string reference = digest(flags);
  EXPECT_EQ(reference.size(), 64u);
  for (const char* devices : {"1", "2", "4", "8"}) {
    for (const char* parallel : {"dp", "ddp"}) {
      EXPECT_EQ(digest(flags + "--devices " + devices + " --parallel " + parallel), reference)
          << parallel << " on " << devices;
    }
  }
}

TEST(Train, PerDeviceBatchIsMultipliedByTheDevices) {
  EXPECT_EQ(digest("--bitwise --steps 4 --devices 4 --parallel ddp --per-device-batch 10"),
            digest("--bitwise --steps 4 --batch 40"));
}

TEST(Train, DeviceIdsAreUsedExactly) {
  EXPECT_THAT(train("--steps 2 --device-ids 5,2 --parallel dp"),
              HasSubstr("using device: cpu:5, cpu:2 (virtual"));
}

TEST(Train, MoreDevicesThanRowsWorkAndIdleOnesAreCounted) {
  for (const char* parallel : {"dp", "ddp"}) {
    EXPECT_THAT(train(std::string("--batch 3 --steps 2 --devices 8 --parallel ") + parallel),
                HasSubstr("5 of 8 devices stay idle: a batch of 3 rows"));
  }
  EXPECT_THAT(train("--batch 1 --steps 2 --devices 2 --parallel dp"),
              HasSubstr("1 of 2 devices stays idle: a batch of 1 row has no rows for it"));
  EXPECT_THAT(train("--dataset synthetic:5x4x2 --model mlp:4-2 --devices 8 --parallel dp"),
              HasSubstr("3 of 8 devices stay idle: a batch of 5 rows"));
}

TEST(Train, ABatchLargerThanTheDataIsOneStepOfAllRows) {
  EXPECT_EQ(digest("--batch 2147483647 --no-shuffle"), digest("--batch 1500 --no-shuffle"));
  EXPECT_THAT(train("--batch 100000"),
              HasSubstr("1500 training rows, 1 step of 1500 rows (batch 100000\nasked)\n"));
}

TEST(Train, TheTorchSamplerSaysWhyWeightsDiffer) {
  const std::string flags = "--sampler torch --steps 2 --devices 2 --parallel ddp";
  const std::string padding = "--sampler torch pads the rows and averages the ranks' means";
  const std::string shuffling = "only with --no-shuffle are the rows PyTorch's";
  const std::string shuffled = one_line(train(flags));
  EXPECT_THAT(shuffled, HasSubstr(padding));
  EXPECT_THAT(shuffled, HasSubstr(shuffling));
  const std::string in_order = one_line(train(flags + " --no-shuffle"));
  EXPECT_THAT(in_order, HasSubstr(padding));
  EXPECT_THAT(in_order, ::testing::Not(HasSubstr(shuffling)));
}

// Flags that change the numbers: each gives weights of its own.
TEST(Train, EveryFlagThatShouldChangesTheWeights) {
  std::set<std::string> digests;
  const std::vector<std::string> variants = {"",
                                             "--no-shuffle",
                                             "--lr 0.05",
                                             "--momentum 0.5",
                                             "--nesterov",
                                             "--weight-decay 0.1",
                                             "--schedule cosine",
                                             "--schedule step:2:0.5",
                                             "--warmup 3",
                                             "--clip-norm 0.01",
                                             "--optimizer adamw",
                                             "--optimizer adamw --weight-decay 0",
                                             "--dtype float64",
                                             "--batch 32",
                                             "--seed 1",
                                             "--model mlp:64-256-10:gelu",
                                             "--model mlp:64-256-10:tanh",
                                             "--model mlp:64-256-16-10"};
  for (const std::string& variant : variants) digests.insert(digest("--steps 4 " + variant));
  EXPECT_EQ(digests.size(), variants.size());
}

TEST(Train, ThreadsPerDeviceDoNotChangeTheLoss) {
  const std::string one = train("--steps 4 --dtype float64 --threads-per-device 1");
  // Not train(), which wants an empty stderr: with two cores a note stands there.
  const Outcome three =
      run_command("train --device cpu --steps 4 --dtype float64 --threads-per-device 3");
  EXPECT_EQ(three.exit_code, 0) << three.err;
  EXPECT_THAT(one, HasSubstr("1 thread)"));
  EXPECT_THAT(three.out, HasSubstr("3 threads)"));
  const auto loss = [](const std::string& out) { return out.substr(out.find("loss "), 11); };
  EXPECT_EQ(loss(one), loss(three.out));
}

TEST(Train, SaysHowManyCoresThereAreForMoreThreads) {
  const std::size_t cores = runtime::num_cores();
  const Outcome most = run_lockstep(
      words(fmt::format("train --device cpu --steps 2 --threads-per-device {}", cores)));
  EXPECT_EQ(most.err, "");
  const Outcome more = run_lockstep(
      words(fmt::format("train --device cpu --steps 2 --threads-per-device {}", cores + 1)));
  EXPECT_EQ(more.exit_code, 0);
  EXPECT_THAT(more.err, HasSubstr(fmt::format("[--threads-per-device] {} threads, and there {} {} "
                                              "core",
                                              cores + 1, cores == 1 ? "is" : "are", cores)));
}

TEST(Train, OmpNumThreadsIsTheDefaultOfThreads) {
  ::setenv("OMP_NUM_THREADS", "3", 1);
  EXPECT_THAT(train("--steps 2"), HasSubstr("3 threads)"));
  EXPECT_THAT(train("--steps 2 --threads-per-device 1"), HasSubstr("1 thread)"));
  ::unsetenv("OMP_NUM_THREADS");
}

TEST(Train, LogsALinePerStepWithEveryKey) {
  for (const char* devices : {"", "--devices 2 --parallel dp", "--devices 3 --parallel ddp"}) {
    const TempFolder folder;
    run_well(
        "train --batch 200 --epochs 2 --schedule step:8:0.5 "
        "--log steps.jsonl " +
            std::string(devices),
        folder.path());
    std::size_t step = 0;
    for (const std::string& line : lines_of(read_text(folder / "steps.jsonl"))) {
      const nlohmann::json record = nlohmann::json::parse(line);
      EXPECT_EQ(record.size(), 7u);
      EXPECT_EQ(record["step"], step);
      EXPECT_EQ(record["epoch"], step / 8);
      EXPECT_EQ(record["lr"], step < 8 ? 0.1 : 0.05);
      for (const char* key : {"loss", "grad_norm", "step_seconds", "samples_per_second"}) {
        EXPECT_GT(record[key], 0) << key;
      }
      ++step;
    }
    EXPECT_EQ(step, 16u);
  }
}

}  // namespace
}  // namespace lockstep::testing
