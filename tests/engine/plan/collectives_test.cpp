// Broadcast, reduce, all-gather and reduce-scatter: every algorithm, run by the serial interpreter.
#include "engine/plan/all_reduce_plan.h"

#include "engine/plan/algorithms.h"
#include "tests/engine/plan/plan_test_data.h"

namespace lockstep::plan {
namespace {

using RootedPlan = CollectivePlan (*)(int, std::size_t, int);
using RootlessPlan = CollectivePlan (*)(int, std::size_t);

// Calls check(world_size, length) for all sizes, with both in the trace.
template <typename Check>
void for_all_sizes(Check check) {
  for (const int world_size : kWorldSizes) {
    for (const std::size_t length : kLengths) {
      SCOPED_TRACE(::testing::Message() << world_size << " ranks, " << length << " elements");
      check(world_size, length);
    }
  }
}

std::vector<double> part_of(const std::vector<double>& buffer, Chunk chunk) {
  const auto begin = buffer.begin() + static_cast<std::ptrdiff_t>(chunk.offset);
  return {begin, begin + static_cast<std::ptrdiff_t>(chunk.count)};
}

Chunk chunk_of_rank(int world_size, std::size_t length, std::size_t rank) {
  return even_chunk(length, static_cast<std::size_t>(world_size), rank);
}

TEST(Broadcast, GivesTheRootsBufferToEveryRank) {
  for (const RootedPlan make : {&broadcast_plan, &flat_broadcast, &tree_broadcast}) {
    for_all_sizes([make](int world_size, std::size_t length) {
      for (int root = 0; root < world_size; ++root) {
        RankBuffers buffers = rounding_buffers(world_size, length);
        const std::vector<double> source = buffers[static_cast<std::size_t>(root)];
        interpret(make(world_size, length, root), buffers);
        for (const std::vector<double>& buffer : buffers) ASSERT_EQ(buffer, source);
      }
    });
  }
}

TEST(Reduce, GivesTheSumToAnyRoot) {
  for_all_sizes([](int world_size, std::size_t length) {
    for (int root = 0; root < world_size; ++root) {
      RankBuffers buffers = integer_buffers(world_size, length);
      const std::vector<double> sum = sum_in_rank_order(buffers);
      interpret(flat_reduce(world_size, length, root), buffers);
      ASSERT_EQ(buffers[static_cast<std::size_t>(root)], sum);
    }
  });
}

TEST(Reduce, FlatReduceAddsInTheOrderOfRanksAndLeavesTheOtherBuffersAlone) {
  const RankBuffers before = rounding_buffers(5, 64);
  RankBuffers buffers = before;
  interpret(flat_reduce(5, 64, 3), buffers);
  EXPECT_EQ(buffers[3], sum_in_rank_order(before));
  for (const std::size_t rank : {0, 1, 2, 4}) EXPECT_EQ(buffers[rank], before[rank]);
}

TEST(AllGather, GivesEveryRanksChunkToAll) {
  for (const RootlessPlan make : {&all_gather_plan, &direct_all_gather, &ring_all_gather}) {
    for_all_sizes([make](int world_size, std::size_t length) {
      RankBuffers buffers = rounding_buffers(world_size, length);
      std::vector<double> gathered;
      for (std::size_t rank = 0; rank < buffers.size(); ++rank) {
        const auto own = part_of(buffers[rank], chunk_of_rank(world_size, length, rank));
        gathered.insert(gathered.end(), own.begin(), own.end());
      }
      interpret(make(world_size, length), buffers);
      for (const std::vector<double>& buffer : buffers) ASSERT_EQ(buffer, gathered);
    });
  }
}

TEST(ReduceScatter, GivesEachRankTheSumOfItsChunk) {
  for (const RootlessPlan make :
       {&reduce_scatter_plan, &direct_reduce_scatter, &ring_reduce_scatter}) {
    for_all_sizes([make](int world_size, std::size_t length) {
      RankBuffers buffers = integer_buffers(world_size, length);
      const std::vector<double> sum = sum_in_rank_order(buffers);
      interpret(make(world_size, length), buffers);
      for (std::size_t rank = 0; rank < buffers.size(); ++rank) {
        const Chunk own = chunk_of_rank(world_size, length, rank);
        ASSERT_EQ(part_of(buffers[rank], own), part_of(sum, own));
      }
    });
  }
}

TEST(Collectives, RefuseARootOutsideTheWorld) {
  for (const RootedPlan make : {&flat_broadcast, &tree_broadcast, &flat_reduce}) {
    expect_error(ErrorCode::Usage, "root must be a rank in [0, 4), found 4",
                 [&] { make(4, 64, 4); });
    expect_error(ErrorCode::Usage, "root must be a rank in [0, 4), found -1",
                 [&] { make(4, 64, -1); });
    expect_error(ErrorCode::Usage, "world size must be at least 1, found 0",
                 [&] { make(0, 64, 0); });
  }
}

}  // namespace
}  // namespace lockstep::plan
