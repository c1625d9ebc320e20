// The ranks that lockstep run starts meet, with its flags and with torchrun's variables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/rank_variables.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

Outcome run_meet(const std::string& flags, const std::string& arguments = "") {
  return MarkedProgram(words(std::string(LOCKSTEP_PROGRAM) + " run " + flags + " -- " + MEET_RANKS +
                             " " + arguments))
      .wait();
}

TEST(Meet, SixtyFourRanks) {
  const Outcome outcome = run_meet("--standalone --nproc-per-node 64", "60");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("[63] rank 63 of 64, local rank 63 of 64, sum 2016"));
}

TEST(Meet, AloneIsRankZeroOfOne) {
  EXPECT_EQ(MarkedProgram({MEET_RANKS}).wait().out, "rank 0 of 1, local rank 0 of 1, sum 0\n");
  EXPECT_EQ(run_meet("--nproc-per-node 1").out, "[0] rank 0 of 1, local rank 0 of 1, sum 0\n");
}

TEST(Meet, AsTorchrunsPagesAndVariablesSay) {
  const Outcome outcome =
      MarkedProgram(words(std::string(LOCKSTEP_PROGRAM) + " run --rdzv-endpoint=localhost:0 -- " +
                          MEET_RANKS),
                    {{"PET_NPROC_PER_NODE", "2"}, {"PET_MASTER_ADDR", "nowhere"}})
          .wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("rank 1 of 2, local rank 1 of 2"));
}

TEST(Meet, TorchrunsVariablesAreForRunAlone) {
  const Outcome outcome = MarkedProgram(words(std::string(LOCKSTEP_PROGRAM) + " devices"),
                                        {{"PET_MASTER_PORT", "none"}, {"PET_NNODES", "some"}})
                              .wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

TEST(Meet, AVariableOfTorchrunThatIsNoNumberIsNamed) {
  const Outcome outcome = MarkedProgram(words(std::string(LOCKSTEP_PROGRAM) + " run -- true"),
                                        {{"PET_MASTER_PORT", "x"}})
                              .wait();
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("[PET_MASTER_PORT] expected a number from 1 to 65535"));
}

TEST(Meet, TwoLaunchersOfTwoNodes) {
  const std::string flags =
      std::string(" run --nnodes=2 --nproc_per_node=2 --master_addr=127.0.0.1") +
      " --master_port=" + free_port() + " --node_rank=";
  const std::string command = LOCKSTEP_PROGRAM + flags;
  MarkedProgram first(words(command + "1 -- " + MEET_RANKS));
  MarkedProgram zeroth(words(command + "0 -- " + MEET_RANKS));
  const Outcome one = first.wait();
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr("[3] rank 3 of 4, local rank 1 of 2, sum 6"));
  EXPECT_EQ(zeroth.wait().exit_code, 0);
}

}  // namespace
}  // namespace lockstep::testing
