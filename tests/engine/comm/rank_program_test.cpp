#include "engine/comm/rank_program.h"

#include <gmock/gmock.h>

#include "engine/plan/all_reduce_plan.h"
#include "engine/plan/ring.h"
#include "engine/plan/shots.h"

namespace lockstep::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RankProgram, StagesWhatAStepBothSendsAndOverwritesOnce) {
  const RankProgram program = rank_program(plan::one_shot_all_reduce(4, 10), 1);
  ASSERT_EQ(program.steps.size(), 1u);
  const ProgramStep& step = program.steps[0];
  EXPECT_THAT(step.staged, ElementsAre(StagedChunk{{0, 10}, 0}));
  ASSERT_EQ(step.sends.size(), 3u);
  for (const ProgramSend& send : step.sends) EXPECT_EQ(send.from, ProgramSend::From::staging);
  EXPECT_EQ(program.num_staging_elements, 16u) << "10, and each chunk begins aligned";
  EXPECT_EQ(program.num_elements_sent, 30u);
}

TEST(RankProgram, StagesNothingWhereAPlanRunsInPlace) {
  using plan::AllReducePlan;
  for (const AllReducePlan choice :
       {AllReducePlan::ring, AllReducePlan::tree, AllReducePlan::halving_doubling,
        AllReducePlan::two_shot, AllReducePlan::reduce_broadcast}) {
    for (const int n : {2, 3, 4, 5, 8}) {
      for (const std::size_t length : {std::size_t{101}, std::size_t{1} << 18}) {
        const plan::CollectivePlan plan = plan::all_reduce_plan(choice, n, length);
        for (int rank = 0; rank < n; ++rank) {
          EXPECT_EQ(rank_program(plan, rank).num_staging_elements, 0u) << plan.name << ", " << n;
        }
      }
    }
  }
}

TEST(RankProgram, AWriteWaitsForTheEarlierSendsOfTheSameMemory) {
  // Rank 0 of 3 sends chunk 0, then 2; its write of chunk 0 in the all-gather half must wait for
  // the first send, that of chunk 2 for the second.
  const RankProgram program = rank_program(plan::ring_all_reduce(3, 9), 0);
  ASSERT_EQ(program.steps.size(), 4u);
  std::vector<std::vector<std::size_t>> waits;
  for (const ProgramStep& step : program.steps) {
    ASSERT_EQ(step.writes.size(), 1u);
    waits.push_back(step.writes[0].sends_before);
  }
  std::vector<plan::Chunk> sent;
  for (const ProgramStep& step : program.steps) sent.push_back(step.sends.at(0).chunk);
  for (std::size_t s = 0; s < program.steps.size(); ++s) {
    for (std::size_t earlier = 0; earlier < s; ++earlier) {
      const bool overlaps = plan::overlaps(sent[earlier], program.steps[s].writes[0].write.chunk);
      EXPECT_EQ(::testing::Value(waits[s], ::testing::Contains(earlier)), overlaps);
    }
  }
}

TEST(RankProgram, WaitsAtTheEndForWhatNoWriteHasWaitedFor) {
  // Rank 1 takes rank 0's chunk in the first step, and rank 0 overwrites it in the second.
  plan::CollectivePlan plan{"there and back", 2, 8, {}};
  plan.steps.push_back({"there", {{0, 1, {0, 8}, plan::Combine::copy}}});
  plan.steps.push_back({"back", {{1, 0, {4, 4}, plan::Combine::copy}}});
  const RankProgram first = rank_program(plan, 0);
  EXPECT_THAT(first.steps.at(1).writes.at(0).sends_before, ElementsAre(0u));
  EXPECT_THAT(first.sends_at_end, IsEmpty());
  EXPECT_THAT(rank_program(plan, 1).sends_at_end, ElementsAre(0u));
}

TEST(RankProgram, OfOneRankOrNoElementsIsEmpty) {
  EXPECT_THAT(rank_program(plan::ring_all_reduce(1, 10), 0).steps, IsEmpty());
  EXPECT_THAT(rank_program(plan::ring_all_reduce(4, 0), 2).steps, IsEmpty());
}

}  // namespace
}  // namespace lockstep::comm
