#include "engine/trace/counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::trace {
namespace {

using ::testing::ElementsAre;

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

}  // namespace
}  // namespace lockstep::trace
