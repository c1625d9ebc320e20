// The steps and bytes that the headers promise.
#include <bit>

#include "engine/plan/algorithms.h"
#include "tests/engine/plan/plan_test_data.h"

namespace lockstep::plan {
namespace {

// Divisible by all world sizes of the tests: 16 * 9 * 5 * 7.
constexpr std::size_t kDivisible = 5040;

TEST(PlanCost, RingSendsAlmostTwiceTheBuffer) {
  for (const int n : kWorldSizes) {
    const CollectivePlan plan = ring_all_reduce(n, kDivisible);
    EXPECT_EQ(num_steps(plan), static_cast<std::size_t>(2 * (n - 1)));
    const std::size_t chunk = kDivisible / static_cast<std::size_t>(n);
    for (int rank = 0; rank < n; ++rank) {
      EXPECT_EQ(elements_sent(plan, rank), 2 * (kDivisible - chunk));
      EXPECT_EQ(elements_received(plan, rank), 2 * (kDivisible - chunk));
    }
  }
}

TEST(PlanCost, TwoShotSendsAsMuchInTwoSteps) {
  const CollectivePlan plan = two_shot_all_reduce(8, kDivisible);
  EXPECT_EQ(num_steps(plan), 2u);
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(elements_sent(plan, rank), kDivisible / 8 * 14);
}

TEST(PlanCost, OneShotSendsTheBufferInOneStep) {
  const CollectivePlan plan = one_shot_all_reduce(8, 101);
  EXPECT_EQ(num_steps(plan), 1u);
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(elements_sent(plan, rank), 7 * 101u);
}

TEST(PlanCost, ReduceBroadcastLoadsRank0) {
  const CollectivePlan plan = reduce_broadcast_all_reduce(8, 101);
  EXPECT_EQ(num_steps(plan), 2u);
  EXPECT_EQ(elements_sent(plan, 0), 7 * 101u);
  EXPECT_EQ(elements_received(plan, 0), 7 * 101u);
  for (int rank = 1; rank < 8; ++rank) EXPECT_EQ(elements_sent(plan, rank), 101u);
}

TEST(PlanCost, HalvingDoublingTakesTwiceLogSteps) {
  for (const int n : {2, 4, 8, 16}) {
    const CollectivePlan plan = halving_doubling_all_reduce(n, kDivisible);
    EXPECT_EQ(num_steps(plan), 2u * static_cast<std::size_t>(std::countr_zero(unsigned(n))));
    EXPECT_EQ(max_elements_sent(plan), max_elements_sent(ring_all_reduce(n, kDivisible)));
  }
}

TEST(PlanCost, HalvingDoublingFoldsExtraRanksIn) {
  const CollectivePlan plan = halving_doubling_all_reduce(6, kDivisible);  // p = 4, e = 2
  EXPECT_EQ(num_steps(plan), 2u * 2 + 2);
  EXPECT_EQ(elements_sent(plan, 0), kDivisible);
  EXPECT_EQ(elements_sent(plan, 1), kDivisible / 4 * 6 + kDivisible);
  EXPECT_EQ(elements_sent(plan, 5), kDivisible / 4 * 6);
  EXPECT_EQ(num_steps(halving_doubling_all_reduce(9, 64)), 2u * 3 + 2);
  EXPECT_EQ(num_steps(halving_doubling_all_reduce(3, 64)), 2u * 1 + 2);
}

TEST(PlanCost, TreeTakesTwiceTheDepthAndPieces) {
  for (const int n : {2, 3, 7, 8, 9, 16}) {
    for (const std::size_t length : {std::size_t{64}, std::size_t{1} << 18}) {
      const int depth = tree_depth(n);
      const std::size_t pieces = tree_pipeline_pieces(2 * depth - 1, length);
      const CollectivePlan plan = tree_all_reduce(n, length);
      EXPECT_EQ(num_steps(plan), static_cast<std::size_t>(2 * depth) + pieces - 1);
      EXPECT_LE(max_elements_sent(plan), 3 * length);
    }
  }
  const CollectivePlan plan = tree_all_reduce(7, 64);
  EXPECT_EQ(elements_sent(plan, 0), 2 * 64u);
  EXPECT_EQ(elements_sent(plan, 1), 3 * 64u);
  EXPECT_EQ(elements_sent(plan, 6), 64u);
}

}  // namespace
}  // namespace lockstep::plan
