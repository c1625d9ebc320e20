#include "engine/plan/collective_plan.h"

#include <gtest/gtest.h>

namespace lockstep::plan {
namespace {

TEST(Chunk, FirstChunksTakeTheRemainder) {
  EXPECT_EQ(even_chunk(10, 4, 0), (Chunk{0, 3}));
  EXPECT_EQ(even_chunk(10, 4, 1), (Chunk{3, 3}));
  EXPECT_EQ(even_chunk(10, 4, 2), (Chunk{6, 2}));
  EXPECT_EQ(even_chunk(10, 4, 3), (Chunk{8, 2}));
}

TEST(Chunk, FewerElementsThanChunksLeaveTheLastOnesEmpty) {
  EXPECT_EQ(even_chunk(2, 4, 1), (Chunk{1, 1}));
  EXPECT_EQ(even_chunk(2, 4, 2), (Chunk{2, 0}));
  EXPECT_EQ(even_chunk(2, 4, 3), (Chunk{2, 0}));
}

TEST(Chunk, ChunksLieBehindEachOtherAndCoverEverything) {
  for (std::size_t n : {0, 1, 5, 64, 101}) {
    for (std::size_t parts = 1; parts <= 16; ++parts) {
      std::size_t end = 0;
      for (std::size_t i = 0; i < parts; ++i) {
        EXPECT_EQ(even_chunk(n, parts, i).offset, end);
        end = even_chunk(n, parts, i).end();
      }
      EXPECT_EQ(end, n);
    }
  }
}

TEST(Chunk, ARangeOfChunksIsTheirUnion) {
  EXPECT_EQ(even_chunks(10, 4, 1, 3), (Chunk{3, 5}));
  EXPECT_EQ(even_chunks(10, 4, 2, 2), (Chunk{6, 0}));
}

TEST(Chunk, OverlapNeedsACommonElement) {
  EXPECT_TRUE(overlaps({0, 4}, {3, 1}));
  EXPECT_FALSE(overlaps({0, 4}, {4, 4}));
  EXPECT_FALSE(overlaps({2, 0}, {0, 4}));
}

}  // namespace
}  // namespace lockstep::plan
