// Files that the program writes: it finds out before training whether it can, and a run that fails
// leaves the files of earlier runs alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <sys/wait.h>

#include <cstdlib>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

TEST(OutputFiles, WithANameThatIsNotUtf8AreWritten) {
  const TempFolder folder;
  const std::string weights = (folder / "caf\xe9.safetensors").string();
  const std::string run_file = (folder / "out.json").string();
  expect_success(run_lockstep({"train", "--epochs", "1", "--save", weights, "--json", run_file}));
  EXPECT_TRUE(std::filesystem::exists(weights));
  EXPECT_TRUE(std::filesystem::exists(run_file));
}

TEST(OutputFiles, OfTwoFlagsMustDifferByWhateverNames) {
  const TempFolder folder;
  write_text(folder / "a", "old");
  std::filesystem::create_hard_link(folder / "a", folder / "hard");
  std::filesystem::create_symlink("a", folder / "soft");
  std::filesystem::create_symlink("none yet", folder / "dangling");
  const std::string other_spelling = "../" + folder.path().filename().string() + "/new";
  for (const std::string& flags :
       {std::string("--save a --log ./a"), std::string("--log hard --json a"),
        std::string("--json soft --trace hard"), "--save new --trace " + other_spelling}) {
    expect_rejected(run_command("train --steps 1 " + flags, folder.path()), 2,
                    {"is also the file of"});
  }
  expect_rejected(run_lockstep({"train", "--save", "dangling", "--log", "none yet"}, folder.path()),
                  2, {"is also the file of --save"});
  EXPECT_EQ(read_text(folder / "a"), "old");
}

TEST(OutputFiles, DoNotReplaceTheWeightsOfInitUnlessBySave) {
  const TempFolder folder;
  run_well("train --steps 1 --save w", folder.path());
  const std::string weights = read_text(folder / "w");
  expect_rejected(run_command("train --steps 1 --init w --log ./w", folder.path()), 2,
                  {"[--log]", "is the file of --init"});
  EXPECT_EQ(read_text(folder / "w"), weights);
  run_well("train --steps 1 --init w --save w", folder.path());
  EXPECT_NE(read_text(folder / "w"), weights);
}

// A shell's way to start the program: redirections and limits. Returns the exit code.
int run_in_shell(const TempFolder& folder, const std::string& script) {
  const std::string command =
      fmt::format("cd '{}' && lockstep='{}'; {}", folder.path().string(), LOCKSTEP_PROGRAM, script);
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(OutputFiles, OnAFullDiskAreAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  for (const char* flag : {"--save", "--log", "--json", "--trace"}) {
    const Outcome outcome = run_lockstep({"train", "--steps", "2", flag, "/dev/full"});
    EXPECT_EQ(outcome.exit_code, 1) << flag;
    EXPECT_THAT(outcome.err, ::testing::HasSubstr("'/dev/full': No space left on device")) << flag;
  }
}

TEST(OutputFiles, BeyondTheLimitOnFileSizesKeepTheOldOnes) {
  for (const char* flag : {"--save", "--log", "--json", "--trace"}) {
    const TempFolder folder;
    write_text(folder / "result", "old");
    const std::string script =
        fmt::format("ulimit -f 2; $lockstep train --steps 60 {} result > out 2> err", flag);
    EXPECT_EQ(run_in_shell(folder, script), 1) << flag;
    EXPECT_THAT(read_text(folder / "err"), ::testing::HasSubstr("(ulimit -f)")) << flag;
    const std::string result = read_text(folder / "result");
    if (flag == std::string("--log")) {  // what fits of it stays
      EXPECT_THAT(result, ::testing::StartsWith("{\"step\":0,"));
      EXPECT_THAT(result, ::testing::EndsWith("}\n"));
    } else {
      EXPECT_EQ(result, "old") << flag;
    }
    const std::filesystem::directory_iterator files(folder.path());
    EXPECT_EQ(std::distance(begin(files), end(files)), 3) << "nothing is left behind";
  }
}

TEST(StandardOutput, ThatIsFullOrClosedIsAnError) {
  const TempFolder folder;
  for (const char* command : {"--help", "env", "devices", "train --steps 2", "train --help",
                              "bench all-reduce -b 1K -e 1K -n 2", "devices --json -"}) {
    for (const char* out : {">/dev/full", ">&-", ">>large"}) {
      write_text(folder / "large", std::string(1024, '.'));
      const std::string script = fmt::format("ulimit -f 1; $lockstep {} {} 2> err", command, out);
      EXPECT_EQ(run_in_shell(folder, script), 1) << script;
      const std::string err = read_text(folder / "err");
      EXPECT_THAT(err, ::testing::HasSubstr("cannot write to standard output")) << script;
    }
    EXPECT_EQ(run_in_shell(folder, fmt::format("$lockstep {} >/dev/null 2> err", command)), 0);
  }
}

TEST(OutputFiles, JsonOnStandardOutputStandsThereAlone) {
  for (const char* command :
       {"train --steps 2", "compare --modes dp --devices 2 --steps 2",
        "bench step --batch 8 --seconds 0.001", "bench all-reduce -b 1K -e 4K -n 2"}) {
    const Outcome outcome = run_command(std::string(command) + " --json -");
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_TRUE(nlohmann::json::accept(outcome.out)) << outcome.out;
    EXPECT_NE(outcome.err, "") << "the table goes to stderr";
  }
}

TEST(OutputFiles, ALossThatIsNotFiniteNamesStepAndRankAndStops) {
  const TempFolder folder;
  for (const char* devices : {"", "--devices 2 --parallel dp", "--devices 4 --parallel ddp",
                              "--devices 2 --parallel ddp --bitwise"}) {
    for (const char* name : {"weights", "run", "log"}) write_text(folder / name, "old");
    const std::string flags = "--save weights --json run --log log ";
    const Outcome outcome = run_command("train --lr 1e30 " + flags + devices, folder.path());
    expect_rejected(outcome, 1, {"the loss is ", "at step 1 on rank ", "smaller --lr"});
    for (const char* name : {"weights", "run"}) EXPECT_EQ(read_text(folder / name), "old");
    EXPECT_EQ(nlohmann::json::parse(read_text(folder / "log"))["step"], 0) << "what there is";
    const Outcome larger = run_command("train --lr 1e308 " + flags + devices, folder.path());
    expect_rejected(larger, 1, {"at step 1 on rank ", ", where '0.weight' is not finite"});
  }
}

TEST(OutputFiles, WeightsThatTheLastUpdateMadeNotFiniteAreNotSaved) {
  const TempFolder folder;
  write_text(folder / "weights", "old");
  for (const char* flags : {"", "--devices 2 --parallel ddp", "--devices 2 --parallel dp"}) {
    const std::string command = "train --lr 1e308 --steps 1 --save weights ";
    const Outcome outcome = run_command(command + flags, folder.path());
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.err, ::testing::HasSubstr("'0.weight' is not finite after the update of "
                                                  "step 0, the last; nothing is saved"));
    EXPECT_TRUE(read_text(folder / "weights") == "old");
  }
}

TEST(OutputFiles, CudaInABuildWithoutItSaysWhatToDo) {
  if (run_lockstep({"devices"}).out.find("no CUDA") == std::string::npos) {
    GTEST_SKIP() << "this build has CUDA";
  }
  for (const char* command : {"train", "compare", "bench step"}) {
    expect_rejected(run_command(std::string(command) + " --device cuda"), 1,
                    {"this build has no CUDA", "use cpu"});
  }
}

}  // namespace
}  // namespace lockstep::testing
