// lockstep env: who this process is, and which variable says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

Outcome env(const Variables& variables) {
  return MarkedProgram({LOCKSTEP_PROGRAM, "env"}, variables).wait();
}

TEST(Env, AloneIsRankZeroOfOne) {
  const Outcome outcome = env({});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, ContainsRegex("launcher +alone\n"));
  EXPECT_THAT(outcome.out, ContainsRegex("world size +1 +default: started alone\n"));
  EXPECT_THAT(outcome.out, ContainsRegex("rendezvous +none: one rank\n"));
}

TEST(Env, NamesTheVariableBehindEachAnswer) {
  const Outcome outcome = env({{"OMPI_COMM_WORLD_RANK", "1"},
                               {"OMPI_COMM_WORLD_SIZE", "2"},
                               {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                               {"MASTER_PORT", "1234"}});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, ContainsRegex("launcher +mpirun \\(Open MPI\\)\n"));
  EXPECT_THAT(outcome.out, ContainsRegex("\nrank +1 +OMPI_COMM_WORLD_RANK\n"));
  EXPECT_THAT(outcome.out, ContainsRegex("\nworld size +2 +OMPI_COMM_WORLD_SIZE\n"));
  EXPECT_THAT(outcome.out, ContainsRegex("\nmaster port +1234 +MASTER_PORT\n"));
  EXPECT_THAT(outcome.out,
              ContainsRegex("rendezvous +rank 0 listens on the loopback, port 1234\n"));
  EXPECT_THAT(outcome.out, ContainsRegex("token +none: needless on the loopback\n"));
}

TEST(Env, ShowsNoToken) {
  const Outcome outcome = env({{"LOCKSTEP_TOKEN", "s3cret"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}});
  EXPECT_THAT(outcome.out, ContainsRegex("token +LOCKSTEP_TOKEN\n"));
  EXPECT_THAT(outcome.out, ::testing::Not(HasSubstr("s3cret")));
}

TEST(Env, UnderTheLauncherSaysSo) {
  const Outcome outcome =
      MarkedProgram(words(std::string(LOCKSTEP_PROGRAM) +
                          " run --standalone --nproc-per-node 2 -- " + LOCKSTEP_PROGRAM + " env"))
          .wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, ContainsRegex("\\[1\\] launcher +lockstep run\n"));
}

TEST(Env, SaysHowGpusConvolve) {
  const Outcome outcome = env({{"LOCKSTEP_CUDNN", "off"}});
  if (outcome.out.find("no device") != std::string::npos) GTEST_SKIP() << "there is no GPU";
  EXPECT_THAT(outcome.out, ContainsRegex("\nconvolutions +products of patches"));
}

TEST(Env, ContradictoryVariablesArePrintedAndThenRefused) {
  const Outcome outcome = env({{"RANK", "3"}, {"WORLD_SIZE", "2"}});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.out, ContainsRegex("\nRANK +3\n"));
  EXPECT_THAT(outcome.err,
              HasSubstr("lockstep: [RANK] expected a rank below WORLD_SIZE=2, found 3"));
}

}  // namespace
}  // namespace lockstep::testing
