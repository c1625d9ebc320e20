// lockstep run: what its ranks are told, and where their output goes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

Outcome run(const std::string& flags, const std::string& script) {
  return MarkedProgram(run_script(flags, script)).wait();
}

// The folder that "lockstep: [run] logs: FOLDER" names.
std::filesystem::path log_folder(const Outcome& outcome) {
  const std::string key = "lockstep: [run] logs: ";
  const std::size_t begin = outcome.err.find(key);
  if (begin == std::string::npos) return "/nowhere";
  const std::size_t end = outcome.err.find('\n', begin);
  return outcome.err.substr(begin + key.size(), end - begin - key.size());
}

TEST(RunOutput, EachLineCarriesItsRank) {
  const Outcome outcome =
      run("--standalone --nproc-per-node 3", "echo one; echo two $RANK >&2; printf three");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(lines_of(outcome.out), UnorderedElementsAre("[0] one", "[0] three", "[1] one",
                                                          "[1] three", "[2] one", "[2] three"));
  EXPECT_THAT(lines_of(outcome.err), UnorderedElementsAre("[0] two 0", "[1] two 1", "[2] two 2"));
}

TEST(RunOutput, TheFilterShowsTheseLocalRanksOnly) {
  const Outcome outcome =
      run("--standalone --nproc_per_node 4 --local_ranks_filter 1,3", "echo x; echo y >&2");
  EXPECT_THAT(lines_of(outcome.out), UnorderedElementsAre("[1] x", "[3] x"));
  EXPECT_THAT(lines_of(outcome.err), UnorderedElementsAre("[1] y", "[3] y"));
}

TEST(RunOutput, FlagsAreTakenAsTheTextsWriteThem) {
  const Outcome outcome =
      run("--nproc_per_node=2 --nnodes=1 --node_rank=0 --master_addr=127.0.0.1 --master_port=24617 "
          "--no_python --monitor_interval=1 --rdzv_backend=c10d --role=trainer --max_restarts=0",
          "echo $MASTER_PORT $ROLE_NAME");
  EXPECT_THAT(lines_of(outcome.out),
              UnorderedElementsAre("[0] 24617 trainer", "[1] 24617 trainer"));
}

TEST(RunOutput, TheProgramNeedsNoDashesAndKeepsItsWords) {
  const Outcome outcome =
      MarkedProgram({LOCKSTEP_PROGRAM, "run", "--standalone", "--nproc-per-node", "1", "printf",
                     "<%s>", "a b", "", "--", "--epochs="})
          .wait();
  EXPECT_EQ(outcome.out, "[0] <a b><><--><--epochs=>\n");
}

TEST(RunOutput, RanksReadNothingFromStandardInput) {
  const std::string command =
      std::string("yes | ") + LOCKSTEP_PROGRAM + " run --standalone --nproc-per-node 1 -- wc -c";
  EXPECT_EQ(MarkedProgram({"bash", "-c", command}).wait().out, "[0] 0\n");
}

TEST(RunOutput, LogsHoldEveryStreamOfEveryAttempt) {
  const TempFolder logs;
  const Outcome outcome =
      run("--standalone --nproc-per-node 2 --max-restarts 1 --rdzv-id job --log-dir " +
              (logs / "deep/er").string(),
          "echo out $RANK $TORCHELASTIC_RESTART_COUNT; echo err >&2; "
          "exit $((1 - TORCHELASTIC_RESTART_COUNT))");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::filesystem::path folder = log_folder(outcome);
  EXPECT_THAT(folder.string(), HasSubstr("deep/er/job_"));
  EXPECT_EQ(read_text(folder / "attempt_0/1/stdout.log"), "out 1 0\n");
  EXPECT_EQ(read_text(folder / "attempt_1/1/stdout.log"), "out 1 1\n");
  EXPECT_EQ(read_text(folder / "attempt_1/0/stderr.log"), "err\n");
  EXPECT_THAT(outcome.out, HasSubstr("[1] out 1 1\n")) << "the console too";
}

TEST(RunOutput, RedirectedStreamsAreInTheLogOnlyAndTeedOnesInBoth) {
  const TempFolder logs;
  const Outcome outcome =
      run("--standalone --nproc-per-node 3 --redirects 0:3,1:2 --tee 1:1 "
          "--log-dir " +
              logs.path().string(),
          "echo out; echo err >&2");
  EXPECT_THAT(lines_of(outcome.out), UnorderedElementsAre("[1] out", "[2] out"));
  EXPECT_THAT(lines_of(outcome.err), ::testing::Contains("[2] err"));
  EXPECT_THAT(outcome.err, ::testing::Not(HasSubstr("[1] err")));
  const std::filesystem::path folder = log_folder(outcome);
  EXPECT_EQ(read_text(folder / "attempt_0/0/stdout.log"), "out\n");
  EXPECT_EQ(read_text(folder / "attempt_0/1/stderr.log"), "err\n");
  EXPECT_EQ(read_text(folder / "attempt_0/1/stdout.log"), "out\n");
  EXPECT_FALSE(std::filesystem::exists(folder / "attempt_0/2"));
}

// A limit on the size of files stands for a disk that is full.
TEST(RunOutput, ALogThatCannotGrowIsSaidOnceAndItsRankGoesOn) {
  const TempFolder logs;
  const std::string command = "ulimit -Sf 8; " + std::string(LOCKSTEP_PROGRAM) +
                              " run --standalone --nproc-per-node 2 --redirects 1:1 --log-dir " +
                              logs.path().string() +
                              " -- sh -c 'ulimit -Sf unlimited; yes xxxxxxx | head -20000; "
                              "echo last $RANK' | cat | wc -l";
  const Outcome outcome = MarkedProgram({"bash", "-c", "set -o pipefail; " + command}).wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err,
              HasSubstr("1/stdout.log: File too large; rank 1 goes on, and its output"));
  EXPECT_EQ(lines_of(outcome.err).size(), 2u) << outcome.err;  // the other one names the logs
  // All of rank 0, and of rank 1 at least what did not fit into 8 KiB.
  EXPECT_GE(std::stoi(outcome.out), 20001 + 20001 - 1024);
}

TEST(RunOutput, AFullDiskUnderStandardOutputIsAFailure) {
  const std::string command =
      std::string(LOCKSTEP_PROGRAM) + " run --standalone --nproc-per-node 2 -- echo x > /dev/full";
  const Outcome outcome = MarkedProgram({"sh", "-c", command}).wait();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("cannot write to standard output: No space left on device"));
}

TEST(RunOutput, AClosedStandardOutputIsAFailureAndItsNumberIsGivenToNothingElse) {
  const std::string command = std::string(LOCKSTEP_PROGRAM) +
                              " run --standalone --nproc-per-node 2 -- sh -c 'echo x; echo $RANK "
                              ">&2' >&-";
  const Outcome outcome = MarkedProgram({"sh", "-c", command}).wait();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("cannot write to standard output: Bad file descriptor"));
  EXPECT_THAT(outcome.err, HasSubstr("[0] 0"));
  EXPECT_THAT(outcome.err, HasSubstr("[1] 1"));
}

TEST(RunMistakes, AScriptWithoutInterpreterIsNamed) {
  const TempFolder folder;
  write_text(folder / "script", "echo hello\n");
  std::filesystem::permissions(folder / "script", std::filesystem::perms::owner_all);
  expect_rejected(run_lockstep({"run", "--standalone", "--", (folder / "script").string()}), 1,
                  {"cannot start", "starts with #!"});
}

TEST(RunMistakes, NoFolderIsMadeForTheLogsOfAProgramThatIsNotThere) {
  const TempFolder folder;
  const Outcome outcome =
      run_command("run --standalone --log-dir logs -- no_such_program", folder.path());
  expect_rejected(outcome, 2, {"there is no program 'no_such_program' in PATH"});
  EXPECT_FALSE(std::filesystem::exists(folder / "logs"));
}

}  // namespace
}  // namespace lockstep::testing
