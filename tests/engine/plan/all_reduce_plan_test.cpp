// Every all-reduce plan, run by the serial interpreter, against direct sums.
#include "engine/plan/all_reduce_plan.h"

#include <algorithm>
#include <string>

#include "tests/engine/plan/plan_test_data.h"

namespace lockstep::plan {
namespace {

constexpr std::array<AllReducePlan, 8> kAllPlans{
    AllReducePlan::automatic,        AllReducePlan::ring,        AllReducePlan::tree,
    AllReducePlan::halving_doubling, AllReducePlan::one_shot,    AllReducePlan::two_shot,
    AllReducePlan::reduce_broadcast, AllReducePlan::hierarchical};

class EveryAllReducePlan : public ::testing::TestWithParam<AllReducePlan> {};

TEST_P(EveryAllReducePlan, GivesTheSameBitsOnEveryRank) {
  for (const int world_size : kWorldSizes) {
    for (const std::size_t length : kLengths) {
      SCOPED_TRACE(::testing::Message() << world_size << " ranks, " << length << " elements");
      const CollectivePlan plan = all_reduce_plan(GetParam(), world_size, length);
      RankBuffers exact = integer_buffers(world_size, length);
      const std::vector<double> sum = sum_in_rank_order(exact);
      interpret(plan, exact);
      for (const std::vector<double>& buffer : exact) ASSERT_EQ(buffer, sum);
      RankBuffers rounded = rounding_buffers(world_size, length);
      interpret(plan, rounded);
      for (const std::vector<double>& buffer : rounded) ASSERT_EQ(buffer, rounded.front());
    }
  }
}

TEST_P(EveryAllReducePlan, MovesNothingForOneRankOrNoElements) {
  EXPECT_EQ(num_steps(all_reduce_plan(GetParam(), 1, 64)), 0u);
  EXPECT_EQ(num_steps(all_reduce_plan(GetParam(), 4, 0)), 0u);
}

TEST_P(EveryAllReducePlan, IsFoundByItsName) {
  EXPECT_EQ(parse_all_reduce_plan(to_string(GetParam())), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Plans, EveryAllReducePlan, ::testing::ValuesIn(kAllPlans),
                         [](const ::testing::TestParamInfo<AllReducePlan>& param) {
                           std::string name(to_string(param.param));
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(AllReducePlanNames, AnUnknownOneIsRefused) {
  expect_error(ErrorCode::Usage,
               "unknown all-reduce plan 'rng'; use one of: auto, ring, tree, halving-doubling, "
               "one-shot, two-shot, reduce-broadcast, hierarchical",
               [&] { parse_all_reduce_plan("rng"); });
}

TEST(AutomaticPlan, PicksByWorldSizeAndLength) {
  EXPECT_EQ(choose_all_reduce_plan(8, 4096), AllReducePlan::one_shot);
  EXPECT_EQ(choose_all_reduce_plan(8, 4097), AllReducePlan::two_shot);
  EXPECT_EQ(choose_all_reduce_plan(9, 65536), AllReducePlan::halving_doubling);
  EXPECT_EQ(choose_all_reduce_plan(9, 65537), AllReducePlan::ring);
  EXPECT_EQ(all_reduce_plan(AllReducePlan::automatic, 4, 100000),
            all_reduce_plan(AllReducePlan::two_shot, 4, 100000));
}

// The order of additions is part of these plans' contracts.
TEST(AllReduceOrder, DirectPlansAddInTheOrderOfRanks) {
  for (const AllReducePlan plan :
       {AllReducePlan::one_shot, AllReducePlan::two_shot, AllReducePlan::reduce_broadcast}) {
    RankBuffers buffers = rounding_buffers(7, 101);
    const std::vector<double> sum = sum_in_rank_order(buffers);
    interpret(all_reduce_plan(plan, 7, 101), buffers);
    EXPECT_EQ(buffers.front(), sum) << to_string(plan);
  }
}

TEST(AllReduceOrder, HalvingDoublingAddsInThePairwiseBinaryTree) {
  for (const int world_size : {2, 4, 8, 16}) {
    RankBuffers buffers = rounding_buffers(world_size, 101);
    RankBuffers tree = buffers;
    for (std::size_t distance = 1; distance < tree.size(); distance *= 2) {
      for (std::size_t into = 0; into < tree.size(); into += 2 * distance) {
        for (std::size_t i = 0; i < 101; ++i) tree[into][i] += tree[into + distance][i];
      }
    }
    interpret(all_reduce_plan(AllReducePlan::halving_doubling, world_size, 101), buffers);
    EXPECT_EQ(buffers.front(), tree.front()) << world_size << " ranks";
  }
}

}  // namespace
}  // namespace lockstep::plan
