// Ranks under mpirun: each test starts mpi_ranks and reads what its ranks print.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <latch>
#include <limits>
#include <string>

#include "engine/comm/mpi/mpi_watchdog.h"

namespace lockstep::comm {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

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

TEST_P(MpiCollectives, SendAllAtOnceAndReceiveInOrder) {
  const Outcome outcome = mpirun(GetParam(), "messages");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

TEST_F(MpiGroup, TwoGroupsOfOneProcessDoNotMixTheirMessages) {
  const Outcome outcome = mpirun(2, "two_groups");
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

TEST_F(MpiGroup, BothSidesOfADifferenceAreNamedWithOperationSizeTypeAndRoot) {
  for (const int rank : {0, 1, 2}) {
    EXPECT_THAT(mpirun(3, "different_operations").output,
                HasSubstr(fmt::format("rank {}: Comm: [collective] rank 2 called broadcast #0 of 5 "
                                      "float64 from rank 1 while rank 0 called all_reduce #0 of 8 "
                                      "float32 (max)",
                                      rank)));
  }
  EXPECT_THAT(
      mpirun(2, "different_types").output,
      HasSubstr("rank 1 called all_gather #1 of 8 int64 while rank 0 called all_gather #1 of "
                "8 float32"));
}

TEST_F(MpiGroup, ARankThatStandsStillIsNamedWhenTheTimeIsOver) {
  const Outcome outcome = mpirun(3, "late_rank");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_NE(outcome.exit_code, 124) << "the job did not end";
  for (const int rank : {0, 2}) {
    EXPECT_THAT(outcome.output, HasSubstr(fmt::format(
                                    "rank {0}: Timeout: [all_reduce] rank {0}'s all_reduce #1 of 8 "
                                    "float32 (sum) was not done within 1 s: rank 1 did not come",
                                    rank)));
  }
}

TEST_F(MpiGroup, ARankThatWaitsForAMessageIsNamedByThoseThatWaitForIt) {
  const Outcome outcome = mpirun(2, "nobody_sends");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output,
              HasSubstr("rank 0's recv #0 of 8 float32 was not done within 1 s: all "
                        "ranks answer; rank 1 is in barrier #0"));
  EXPECT_THAT(outcome.output, HasSubstr("rank 1's barrier #0 was not done within 1 s: all ranks "
                                        "answer; rank 0 is in recv #0 of 8 float32"));
}

TEST_F(MpiGroup, ARankThatLeftIsNamed) {
  const Outcome outcome = mpirun(2, "uneven_calls");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output,
              HasSubstr("rank 0: Comm: [all_reduce] rank 1 left the group after 1 collectives, and "
                        "all_reduce #1 of 8 float32 (sum) needs it"));
  EXPECT_THAT(outcome.output, Not(HasSubstr("rank 1: "))) << "it had done what it wanted";
}

TEST_F(MpiGroup, AnAbortReachesAllRanks) {
  const Outcome outcome = mpirun(3, "aborted");
  EXPECT_NE(outcome.exit_code, 0);
  for (const int rank : {0, 1, 2}) {
    EXPECT_THAT(outcome.output,
                HasSubstr(fmt::format(
                    "rank {}: Comm: [abort] rank 1 aborted the group: its data is gone", rank)));
  }
}

TEST_F(MpiGroup, AMessageOfAnotherSizeIsAnErrorOnBothSides) {
  const Outcome outcome = mpirun(2, "different_messages");
  for (const int rank : {0, 1}) {
    EXPECT_THAT(outcome.output,
                HasSubstr(fmt::format("rank {}: Comm: [recv] rank 1 called recv #0 of 9 float32 "
                                      "while rank 0 called send #0 of 8 float32",
                                      rank)));
  }
}

TEST_F(MpiGroup, RefusesWhatMpiCannotDo) {
  EXPECT_THAT(mpirun(2, "halves").output, HasSubstr("[all_reduce] MPI does not reduce bfloat16"));
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

TEST(MpiWatchdog, TellsOfACallThatIsNotDoneInTimeAndOfNoOther) {
  std::latch expired(1);
  std::string told;
  MpiWatchdog watchdog([&](const CallHeader& call, double) {
    told += to_string(call);
    expired.count_down();
  });
  CallHeader call;
  call.operation = Operation::barrier;
  call.sequence = 1;
  { const MpiWatchdog::Scope in_time(watchdog, call, 60); }
  {
    const MpiWatchdog::Scope without_limit(watchdog, call, std::numeric_limits<double>::infinity());
  }
  call.sequence = 2;
  const MpiWatchdog::Scope too_long(watchdog, call, 1e-3);
  expired.wait();
  EXPECT_EQ(told, "barrier #2");
}

}  // namespace
}  // namespace lockstep::comm
