// Ranks that are processes and compute on GPUs: on one that they share, over memory of the host,
// and on one each, over NCCL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <regex>
#include <string>

#include "engine/comm/nccl/nccl_group.h"
#include "engine/runtime/physical_gpus.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kProgram = LOCKSTEP_PROGRAM;

// Whatever the machine has, the programs see this many GPUs. Times of emulated ones mean nothing.
Variables gpus(int count) {
  return {{"CUDA_VISIBLE_DEVICES", count == 1 ? "0" : "0,1"},
          {"LOCKSTEP_EMULATED_GPUS", std::to_string(count)},
          {"LOCKSTEP_TUNING", "off"}};
}

Outcome run_on(int num_gpus, const std::string& arguments) {
  return run_command(arguments, {}, gpus(num_gpus));
}

const std::string kTrain = "train --device cuda --bitwise --batch 61 --steps 26 ";
const std::string kRanks = "--parallel ddp --ranks processes ";

// The digest of one GPU's weights.
const std::string& reference() {
  static const std::string digest = weights_digest(run_on(1, kTrain).out);
  return digest;
}

std::string virtual_devices(int count) {
  return "--devices " + std::to_string(count) + " --virtual-devices cuda:0*" +
         std::to_string(count) + " ";
}

class ProcessGpus : public ::testing::Test {
 protected:
  void SetUp() override { need(1); }
  static void need(std::size_t num_gpus) {
    const std::size_t found = runtime::physical_gpus().size();
    if (found < num_gpus) GTEST_SKIP() << "needs " << num_gpus << " GPUs, found " << found;
  }
};

// Without NCCL there is nothing to test.
class ProcessNccl : public ProcessGpus {
 protected:
  void SetUp() override {
    if (!comm::has_nccl()) GTEST_SKIP() << comm::no_nccl_reason();
    ProcessGpus::SetUp();
  }
};

void expect_the_weights_of_one_gpu(const Outcome& outcome, const std::string& description) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(reference(), "");
  EXPECT_EQ(weights_digest(outcome.out), reference());
  EXPECT_THAT(outcome.out, HasSubstr(description));
}

// For compare, which checks the weights of its rows itself.
void expect_equal_rows(const Outcome& outcome) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("verdict: every row trains as one device does"));
}

TEST_F(ProcessGpus, ThatShareOneComputeTheBitsOfOneDevice) {
  for (const int count : {2, 4}) {
    for (const char* transport : {"shm", "tcp"}) {
      expect_the_weights_of_one_gpu(
          run_on(1, kTrain + kRanks + virtual_devices(count) + "--transport " + transport),
          "own: auto over " + std::string(transport) + ", staged in host memory");
    }
  }
}

// Gradients are averaged by buckets while backward runs.
TEST_F(ProcessGpus, ThatShareOneTrainTheWeightsOfOneDeviceInEveryRowOfCompare) {
  const TempFolder folder;
  const Outcome outcome = run_on(1,
                                 "compare --device cuda --ranks processes --devices 1,2,4 "
                                 "--virtual-devices cuda:0*4 --first-bucket-mib 0.01 "
                                 "--bucket-mib 0.02 --steps 20 --json " +
                                     (folder / "run.json").string());
  expect_equal_rows(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("virtual devices on 1 GPU: this shows overhead"));
  const json run = read_json(folder / "run.json");
  for (const json& row : run["rows"]) {
    EXPECT_EQ(row["physical_devices"], 1);
    EXPECT_LE(row["max_abs_weight_diff"].is_null() ? 0 : row["max_abs_weight_diff"].get<double>(),
              1e-5);
  }
}

TEST_F(ProcessGpus, ThatAreTooFewAreRefusedInOneLineWithTheChoices) {
  for (const std::string command :
       {"train --parallel ddp", "compare --modes ddp", "bench all-reduce"}) {
    expect_rejected(run_on(1, command + " --device cuda --ranks processes --devices 2"), 2,
                    {"[--devices] there is 1 cuda device, asked for 2", "--device cpu",
                     "--virtual-devices 'cuda:0*2'"});
  }
}

TEST_F(ProcessGpus, ThatAreTooFewAreRefusedByTheRankOfAnotherLauncher) {
  const Outcome outcome = run_on(1, std::string("run --standalone --nproc-per-node 2 -- ") +
                                        kProgram + " train --device cuda --parallel ddp");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("rank 1 has local rank 1 and should compute on cuda:1, but "
                                     "this process sees 1 cuda device; start at most 1"));
  EXPECT_THAT(outcome.err, HasSubstr("--virtual-devices cuda:0*N"));
}

TEST_F(ProcessNccl, RefusesRanksThatShareAGpuInOneLineWithTheChoices) {
  for (const std::string command : {"train --parallel ddp", "bench all-reduce"}) {
    expect_rejected(run_on(1, command + " --device cuda --comm nccl " + virtual_devices(2)), 2,
                    {"[--comm] nccl needs a GPU for each rank, and 2 ranks share them here",
                     "--comm own", "--nccl-share-gpu"});
  }
}

// Under another launcher the ranks themselves find out.
TEST_F(ProcessNccl, RefusesRanksThatShareAGpuAlsoUnderALauncher) {
  const Outcome outcome =
      run_on(1, std::string("run --standalone --nproc-per-node 2 -- ") + kProgram +
                    " train --device cuda --parallel ddp --comm nccl --virtual-devices cuda:0*2");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("[nccl] ranks 0 and 1 are both on the GPU GPU-"));
  EXPECT_THAT(outcome.err, HasSubstr("use --comm own, which shares GPUs, or --nccl-share-gpu"));
}

TEST_F(ProcessNccl, SharesAGpuWhenToldToAndSaysThatItIsNotForTiming) {
  const TempFolder folder;
  const std::string flags = "--comm nccl --nccl-share-gpu --steps 20 --device cuda --json " +
                            (folder / "run.json").string() + " ";
  const Outcome outcome = run_on(1, "train " + flags + kRanks + virtual_devices(2));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("rank 0 of 2 (lockstep run), nccl 2."));
  EXPECT_THAT(outcome.out, HasSubstr(", ranks share a GPU: not for timing"));
  const json run = read_json(folder / "run.json");
  EXPECT_EQ(run["config"]["comm"], "nccl");
  EXPECT_EQ(run["config"]["nccl_share_gpu"], true);
  EXPECT_EQ(run["rows"][0]["physical_devices"], 1);
  for (const int count : {2, 4}) {
    expect_equal_rows(run_on(1, "compare --modes ddp " + flags + virtual_devices(count)));
  }
}

TEST_F(ProcessNccl, AKilledRankOfThoseThatShareAGpuEndsTheOthers) {
  for (const int count : {2, 4}) {
    MarkedProgram program(
        words(std::string(kProgram) +
              " train --device cuda --comm nccl --nccl-share-gpu --steps 1000000 " + kRanks +
              virtual_devices(count)),
        gpus(1));
    ASSERT_TRUE(wait_until([&] { return program.out().find("epoch") != std::string::npos; }));
    ASSERT_EQ(::kill(program.alive().back(), SIGKILL), 0);
    const Outcome outcome = program.wait();
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_THAT(outcome.err, HasSubstr("signal 9 (SIGKILL)"));
    EXPECT_EQ(program.num_alive(), 0u);
  }
}

TEST_F(ProcessNccl, IsChosenWhereEveryRankHasAGpuOfItsOwn) {
  need(2);
  if (IsSkipped()) return;
  const Outcome outcome = run_on(2, "train --device cuda --steps 20 --devices 2 " + kRanks);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("rank 0 of 2 (lockstep run), nccl 2."));
  EXPECT_THAT(outcome.out, Not(HasSubstr("not for timing")));
  expect_equal_rows(
      run_on(2, "compare --device cuda --ranks processes --modes ddp --devices 2 --steps 20"));
}

TEST_F(ProcessNccl, IsNotChosenWhereOnlySomeRanksHaveAGpuOfTheirOwn) {
  need(2);
  if (IsSkipped()) return;
  expect_the_weights_of_one_gpu(
      run_on(2, kTrain + kRanks + "--devices 4 --virtual-devices cuda:0*3,cuda:1"),
      "own: auto over shm, staged in host memory");
  expect_equal_rows(run_on(2,
                           "compare --device cuda --ranks processes --modes ddp --devices 3 "
                           "--steps 20 --virtual-devices cuda:0,cuda:1*2"));
}

// A GPU that is too small says which batch is not, for one device, for several that share it, and
// for processes.
TEST_F(ProcessGpus, SayWhichBatchFitsWhereMemoryRunsOut) {
  const std::string rows = "32000";
  for (const std::string mode : {"", "--parallel dp --devices 2 --virtual-devices cuda:0*2 ",
                                 "--parallel ddp --ranks processes --devices 2 "}) {
    const auto train = [&](const std::string& batch) {
      return run_command(
          "train --device cuda --model mlp:784-512-10 --steps 2 --dataset synthetic:" + rows +
              "x784x10 --lr 0.01 " + mode + "--batch " + batch,
          {}, {{"LOCKSTEP_EMULATED_MEMORY_MIB", "128"}, {"LOCKSTEP_TUNING", "off"}});
    };
    const Outcome asked = train(rows);
    if (asked.exit_code == 0) GTEST_SKIP() << "this GPU is large enough";
    std::smatch fits;
    ASSERT_TRUE(std::regex_search(asked.err, fits,
                                  std::regex("a step on 32000 rows needs about .* on cuda:[01], "
                                             "which has .*: about ([0-9]+) rows would fit")))
        << asked.err;
    EXPECT_EQ(train(fits[1]).exit_code, 0) << asked.err;
    const int too_many = 2 * std::stoi(fits[1]);
    EXPECT_NE(train(std::to_string(too_many)).exit_code, 0) << asked.err;
  }
}

}  // namespace
}  // namespace lockstep::testing
