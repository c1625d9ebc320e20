// Ranks under mpirun: each test starts mpi_ranks and reads what its ranks print.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace lockstep::comm {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

struct Outcome {
  int exit_code = -1;
  std::string output;
};

Outcome mpirun(int world_size, const std::string& scenario) {
  const std::string command = fmt::format(
      "OMPI_MCA_rmaps_base_oversubscribe=1 timeout -k 5 120 mpirun --allow-run-as-root "
      "--oversubscribe --bind-to none -np {} {} {} 2>&1",
      world_size, MPI_RANKS, scenario);
  Outcome outcome;
  std::FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> text;
  while (std::fgets(text.data(), text.size(), pipe) != nullptr) outcome.output += text.data();
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

class MpiGroup : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "no mpirun here";
  }
};

class MpiCollectives : public MpiGroup, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(WorldSizes, MpiCollectives, ::testing::Values(1, 2, 4));

TEST_P(MpiCollectives, AllReduceEveryOpInEveryTypeBlockingAndNot) {
  const Outcome outcome = mpirun(GetParam(), "all_reduce");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

TEST_P(MpiCollectives, GatherScatterAndBroadcast) {
  const Outcome outcome = mpirun(GetParam(), "moves");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

TEST_F(MpiGroup, RanksThatCallDifferentThingsAreNamedByAll) {
  const Outcome outcome = mpirun(3, "different_calls");
  EXPECT_NE(outcome.exit_code, 0);
  for (const int rank : {0, 1, 2}) {
    EXPECT_THAT(outcome.output, HasSubstr(fmt::format(
                                    "rank {}: Comm: [collective] rank 1 called all_reduce #0 of 7 "
                                    "float32 (sum) while rank 0 called all_reduce #0 of 8 float32 "
                                    "(sum)",
                                    rank)));
  }
}

// mpirun ends the others as soon as one rank has ended.
TEST_F(MpiGroup, ARankThatStandsStillEndsTheOthersWhenTheTimeIsOver) {
  const Outcome outcome = mpirun(3, "late_rank");
  EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
  EXPECT_THAT(outcome.output,
              ContainsRegex("\\[all_reduce\\] rank [02] waited 2 s in all_reduce #1 "
                            "of 8 float32 \\(sum\\) for the other ranks: one of "
                            "them has ended, stands still, or did not call it"));
}

TEST_F(MpiGroup, ARankThatIsStoppedBeforeMpiStartsEndsTheOthersWhenTheTimeIsOver) {
  const Outcome outcome = mpirun(3, "stopped_at_start");
  EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
  EXPECT_THAT(outcome.output,
              ContainsRegex("\\[mpi\\] rank [02] waited 2 s in MPI_Init for the other ranks"));
}

TEST_F(MpiGroup, ARankThatAbortsEndsTheJob) {
  const Outcome outcome = mpirun(3, "aborted");
  EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
  EXPECT_THAT(outcome.output,
              HasSubstr("rank 1: Comm: [abort] rank 1 aborted the group: its data is gone"));
}

TEST_F(MpiGroup, RefusesWhatMpiCannotDo) {
  EXPECT_THAT(mpirun(2, "halves").output, HasSubstr("[all_reduce] MPI does not reduce bfloat16"));
  EXPECT_THAT(mpirun(1, "message").output,
              HasSubstr("[send] MPI carries only collectives here; for messages use --comm own"));
  const Outcome named = mpirun(1, "named_plan");
  EXPECT_EQ(named.exit_code, 2);
  EXPECT_THAT(named.output, HasSubstr("MPI chooses its own algorithm, found the plan ring"));
}

TEST_F(MpiGroup, AProcessWithAnotherRankThanMpiGaveItIsAnError) {
  const Outcome outcome = mpirun(1, "wrong_rank");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.output, HasSubstr("this process is rank 7 of 1 (started by: a test), but MPI "
                                        "says rank 0 of 1 (the library: "));
}

}  // namespace
}  // namespace lockstep::comm
