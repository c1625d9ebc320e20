#include "engine/plan/micro_shards.h"

#include "engine/plan/algorithms.h"
#include "tests/engine/plan/plan_test_data.h"

namespace lockstep::plan {
namespace {

using ::testing::ElementsAre;

std::vector<std::size_t> sizes(const MicroShardPlan& plan) {
  std::vector<std::size_t> result;
  for (const ScatterPart& shard : plan.shards) result.push_back(shard.size);
  return result;
}

void do_additions(const std::vector<MicroShardAddition>& additions, RankBuffers& buffers,
                  std::size_t first) {
  for (const MicroShardAddition& addition : additions) {
    for (std::size_t i = 0; i < buffers.front().size(); ++i) {
      buffers[first + addition.into][i] += buffers[first + addition.from][i];
    }
  }
}

TEST(MicroShards, AreEightSomeOfThemEmpty) {
  EXPECT_THAT(sizes(micro_shard_plan(64, 1)), ElementsAre(8, 8, 8, 8, 8, 8, 8, 8));
  EXPECT_THAT(sizes(micro_shard_plan(10, 1)), ElementsAre(2, 2, 2, 2, 2, 0, 0, 0));
  EXPECT_THAT(sizes(micro_shard_plan(3, 1)), ElementsAre(1, 1, 1, 0, 0, 0, 0, 0));
  EXPECT_THAT(sizes(micro_shard_plan(0, 1)), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0));
}

TEST(MicroShards, AreAddedInOneFixedBinaryTree) {
  using Add = MicroShardAddition;
  EXPECT_THAT(micro_shard_additions(8), ElementsAre(Add{0, 1}, Add{2, 3}, Add{4, 5}, Add{6, 7},
                                                    Add{0, 2}, Add{4, 6}, Add{0, 4}));
  EXPECT_THAT(micro_shard_additions(4), ElementsAre(Add{0, 1}, Add{2, 3}, Add{0, 2}));
  EXPECT_THAT(micro_shard_additions(1), ElementsAre());
}

TEST(MicroShards, AnyDevicesGiveTheBitsOfOne) {
  const RankBuffers gradients = rounding_buffers(8, 101);
  RankBuffers one_device = gradients;
  do_additions(micro_shard_additions(8), one_device, 0);
  for (const std::size_t devices : {2, 4, 8}) {
    RankBuffers shards = gradients;
    RankBuffers ranks;
    const std::size_t per_device = micro_shard_plan(64, devices).shards_per_device();
    for (std::size_t device = 0; device < devices; ++device) {
      do_additions(micro_shard_additions(per_device), shards, device * per_device);
      ranks.push_back(shards[device * per_device]);
    }
    interpret(halving_doubling_all_reduce(static_cast<int>(devices), 101), ranks);
    for (const std::vector<double>& rank : ranks) EXPECT_EQ(rank, one_device.front());
  }
  EXPECT_NE(sum_in_rank_order(gradients), one_device.front()) << "the data do not show rounding";
}

}  // namespace
}  // namespace lockstep::plan
