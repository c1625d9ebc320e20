#include "engine/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/expect_error.h"

namespace lockstep::data {
namespace {

using lockstep::testing::expect_error;
using ::testing::ElementsAre;

std::vector<std::size_t> unshuffled(std::size_t num_samples, std::size_t world_size,
                                    std::size_t rank, DropLast drop_last = DropLast::off) {
  return distributed_sampler(num_samples, world_size, rank, 0, 0, Shuffle::off, drop_last);
}

std::vector<std::size_t> shuffled(std::uint64_t seed, std::uint64_t epoch) {
  return distributed_sampler(100, 4, 1, seed, epoch, Shuffle::on, DropLast::off);
}

TEST(DistributedSampler, PadsOrDropsAsPyTorchDoes) {
  using Rows = std::vector<std::size_t>;
  const std::vector<Rows> padded{{0, 4, 8}, {1, 5, 9}, {2, 6, 0}, {3, 7, 1}};
  const std::vector<Rows> dropped{{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(unshuffled(10, 4, rank), padded[rank]);
    EXPECT_EQ(unshuffled(10, 4, rank, DropLast::on), dropped[rank]);
  }
  EXPECT_EQ(unshuffled(6, 3, 2), (Rows{2, 5}));
  EXPECT_EQ(unshuffled(2, 5, 3), Rows{1}) << "fewer rows than half the ranks";
  EXPECT_EQ(unshuffled(2, 5, 4), Rows{0});
  EXPECT_EQ(unshuffled(2, 5, 4, DropLast::on), Rows{});
  EXPECT_EQ(unshuffled(0, 3, 1), Rows{});
}

TEST(DistributedSampler, ShufflesBySeedPlusEpoch) {
  EXPECT_EQ(shuffled(0, 1), shuffled(1, 0));
  EXPECT_NE(shuffled(0, 0), shuffled(0, 1));
}

TEST(ExactBatches, GivesEveryRankAShardInEveryStep) {
  SamplerOptions options{.num_samples = 12, .batch_size = 10, .world_size = 8, .rank = 7};
  options.shuffle = Shuffle::off;
  EXPECT_THAT(exact_batches(options, 0), ElementsAre(BatchShard{{}, 10, 10}, BatchShard{{}, 2, 2}));
  options.rank = 1;
  EXPECT_THAT(exact_batches(options, 0),
              ElementsAre(BatchShard{{2, 3}, 10, 2}, BatchShard{{11}, 2, 1}));
}

TEST(ExactBatches, MakeUpOneDevicesBatches) {
  SamplerOptions single{.num_samples = 103, .batch_size = 16, .seed = 5};
  const auto expected = exact_batches(single, 2);
  ASSERT_EQ(expected.size(), 7u);
  EXPECT_EQ(expected.back().rows.size(), 7u);
  for (std::size_t world_size = 1; world_size <= 9; ++world_size) {
    std::vector<std::vector<std::size_t>> joined(expected.size());
    for (std::size_t rank = 0; rank < world_size; ++rank) {
      SamplerOptions options = single;
      options.world_size = world_size;
      options.rank = rank;
      const auto shards = exact_batches(options, 2);
      ASSERT_EQ(shards.size(), expected.size());
      for (std::size_t step = 0; step < shards.size(); ++step) {
        EXPECT_EQ(shards[step].global_offset, joined[step].size());
        EXPECT_EQ(shards[step].num_global_rows, expected[step].rows.size());
        joined[step].insert(joined[step].end(), shards[step].rows.begin(), shards[step].rows.end());
      }
    }
    for (std::size_t step = 0; step < expected.size(); ++step) {
      EXPECT_EQ(joined[step], expected[step].rows) << world_size << " ranks, step " << step;
    }
  }
}

TEST(MicroShardBatches, AreCutByEightForAnyRanks) {
  // 20 rows make micro-shards of 3, the last of 2: four of them are 12 rows, where an exact shard
  // would have 10.
  SamplerOptions options{.num_samples = 20, .batch_size = 20, .world_size = 2, .rank = 0};
  options.shuffle = Shuffle::off;
  EXPECT_EQ(micro_shard_batches(options, 0)[0].rows.size(), 12u);
  options.rank = 1;
  const BatchShard second = micro_shard_batches(options, 0)[0];
  EXPECT_THAT(second.rows, ElementsAre(12, 13, 14, 15, 16, 17, 18, 19));
  EXPECT_EQ(second.global_offset, 12u);
  EXPECT_EQ(second.num_global_rows, 20u);
}

TEST(TorchBatches, CutEachRanksOwnRows) {
  SamplerOptions options{.num_samples = 10, .batch_size = 8, .world_size = 4, .rank = 2};
  options.shuffle = Shuffle::off;
  EXPECT_THAT(torch_batches(options, 0),
              ElementsAre(BatchShard{{2, 6}, 8, 4}, BatchShard{{0}, 4, 2}));
}

TEST(EpochOrder, OfATextDrawsWhereWindowsBegin) {
  const TextWindows windows{.length = 8, .num_starts = 1000};
  EXPECT_THAT(epoch_order(3, 1, 0, Shuffle::off, windows), ElementsAre(0, 8, 16));
  const auto order = epoch_order(100, 1, 0, Shuffle::on, windows);
  EXPECT_THAT(order, ::testing::Each(::testing::Lt(1000u)));
  EXPECT_EQ(epoch_order(100, 0, 1, Shuffle::on, windows), order);
  EXPECT_NE(epoch_order(100, 1, 1, Shuffle::on, windows), order);
  // A window's place in the order decides, however many there are.
  const auto fewer = epoch_order(10, 1, 0, Shuffle::on, windows);
  EXPECT_TRUE(std::equal(fewer.begin(), fewer.end(), order.begin()));
}

TEST(Samplers, RefuseRanksAndBatchesThatCannotBe) {
  expect_error(ErrorCode::Usage, "rank 4 is outside [0, 3]", [] { unshuffled(10, 4, 4); });
  expect_error(ErrorCode::Usage, "at least 1 rank", [] { unshuffled(10, 0, 0); });
  expect_error(ErrorCode::Usage, "at least 1 row",
               [] { exact_batches({.num_samples = 4, .batch_size = 0}, 0); });
  expect_error(ErrorCode::Usage, "3", [] {
    micro_shard_batches({.num_samples = 20, .batch_size = 10, .world_size = 3}, 0);
  });
  expect_error(ErrorCode::Usage, "10 rows cannot be shared evenly by 4 ranks",
               [] { torch_batches({.num_samples = 20, .batch_size = 10, .world_size = 4}, 0); });
}

}  // namespace
}  // namespace lockstep::data
