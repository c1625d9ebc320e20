// Files that the program writes: it finds out before training whether it can, and a run that fails
// leaves the files of earlier runs alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

class OutputFlag : public ::testing::TestWithParam<std::string> {};

TEST_P(OutputFlag, IntoAMissingFolderFailsBeforeTraining) {
  expect_rejected(run_lockstep({"train", GetParam(), "missing/file"}), 1,
                  {fmt::format("[{}]", GetParam()), "'missing'", "No such file or directory"});
}

TEST_P(OutputFlag, ThatNamesAFolderFailsBeforeTraining) {
  const TempFolder folder;
  expect_rejected(run_lockstep({"train", GetParam(), folder.path().string()}), 1,
                  {fmt::format("[{}]", GetParam()), "is a folder"});
}

INSTANTIATE_TEST_SUITE_P(OutputFiles, OutputFlag,
                         ::testing::Values("--save", "--log", "--json", "--trace"),
                         [](const auto& parameter) { return parameter.param.substr(2); });

TEST(OutputFiles, OfCompareAndBenchAreCheckedBeforeTheyMeasure) {
  const std::string path = "missing/file";
  for (const char* command : {"compare", "bench step", "bench all-reduce"}) {
    const Outcome outcome = run_lockstep(words(std::string(command) + " --json " + path));
    expect_rejected(outcome, 1, {"[--json]", "'missing'"});
    EXPECT_EQ(outcome.out, "");
  }
}

TEST(OutputFiles, OnlyJsonGoesToStandardOutput) {
  for (const char* flag : {"--save", "--log", "--trace"}) {
    expect_rejected(run_lockstep({"train", flag, "-"}), 2, {flag, "only --json"});
  }
}

TEST(OutputFiles, OfTwoFlagsMustDiffer) {
  expect_rejected(run_lockstep(words("train --save a --json a")), 2,
                  {"'a' is also the file of --save"});
}

TEST(OutputFiles, JsonOnStandardOutputStandsThereAlone) {
  for (const char* command :
       {"train --steps 2", "compare --modes dp --devices 2 --steps 2",
        "bench step --batch 8 --seconds 0.001", "bench all-reduce -b 1K -e 4K -n 2"}) {
    const Outcome outcome = run_lockstep(words(std::string(command) + " --json -"));
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_TRUE(nlohmann::json::accept(outcome.out)) << outcome.out;
    EXPECT_NE(outcome.err, "") << "the table goes to stderr";
  }
}

TEST(OutputFiles, ALossThatIsNotFiniteNamesStepAndRankAndStops) {
  const TempFolder folder;
  for (const char* devices : {"", "--devices 2 --parallel dp", "--devices 4 --parallel ddp",
                              "--devices 2 --parallel ddp --bitwise"}) {
    for (const char* name : {"weights", "run"}) write_text(folder / name, "old");
    const Outcome outcome = run_lockstep(
        words(std::string("train --lr 1e30 --save weights --json run ") + devices), folder.path());
    expect_rejected(outcome, 1, {"the loss is ", "at step 1 on rank ", "smaller --lr"});
    EXPECT_EQ(read_text(folder / "weights"), "old");
    EXPECT_EQ(read_text(folder / "run"), "old");
  }
}

TEST(OutputFiles, CudaInABuildWithoutItSaysWhatToDo) {
  if (run_lockstep({"devices"}).out.find("no CUDA") == std::string::npos) {
    GTEST_SKIP() << "this build has CUDA";
  }
  for (const char* command : {"train", "compare", "bench step"}) {
    expect_rejected(run_lockstep(words(std::string(command) + " --device cuda")), 1,
                    {"this build has no CUDA", "use cpu"});
  }
}

}  // namespace
}  // namespace lockstep::testing
