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

}  // namespace
}  // namespace lockstep::plan
