#include "engine/trace/counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace lockstep::trace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Counters, AddUpByRankAndOperation) {
  reset_collective_counts();
  count_collective(1, "broadcast", 5);
  count_collective(0, "all_reduce", 100);
  count_collective(0, "all_reduce", 28);
  count_collective(0, "barrier", 0);
  EXPECT_THAT(collective_counts(), ElementsAre(CollectiveCount{0, "all_reduce", 2, 128},
                                               CollectiveCount{0, "barrier", 1, 0},
                                               CollectiveCount{1, "broadcast", 1, 5}));
  EXPECT_EQ(collective_bytes_of(0), 128u);
  EXPECT_EQ(collective_bytes_of(7), 0u);
  reset_collective_counts();
  EXPECT_THAT(collective_counts(), IsEmpty());
}

TEST(Counters, ForgetWhatIsCountedInsideAnUncountedScope) {
  reset_collective_counts();
  count_collective(0, "all_reduce", 5);
  {
    const UncountedScope scope({0, 2});
    count_collective(0, "all_reduce", 7);
    count_collective(2, "broadcast", 1);
    count_collective(1, "broadcast", 3);  // not of these ranks
  }
  EXPECT_THAT(collective_counts(), ElementsAre(CollectiveCount{0, "all_reduce", 1, 5},
                                               CollectiveCount{1, "broadcast", 1, 3}));
}

TEST(Counters, LoseNothingWhenRanksCountAtOnce) {
  reset_collective_counts();
  constexpr std::size_t kNumCalls = 1000;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      for (std::size_t call = 0; call < kNumCalls; ++call) {
        count_collective(i / 2, "all_reduce", 3);  // two threads per rank
        EXPECT_GE(collective_bytes_of(i / 2), 3u);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_THAT(collective_counts(),
              ElementsAre(CollectiveCount{0, "all_reduce", 2 * kNumCalls, 6 * kNumCalls},
                          CollectiveCount{1, "all_reduce", 2 * kNumCalls, 6 * kNumCalls}));
}

}  // namespace
}  // namespace lockstep::trace
