#include "engine/comm/slow_collective_notice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <vector>

#include "engine/comm/thread_group.h"

namespace lockstep::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Rank 1 comes when it has been missed, so the wait is as long as it takes to be told.
TEST(SlowCollectiveNotice, TellsWhoIsMissingFromACollectiveAndWhenItIsOver) {
  std::promise<std::string> missed;
  std::promise<void> over;
  int num_told = 0;
  const SlowCollectiveNotice watch(
      [&](const std::string& words) {
        if (num_told == 0) missed.set_value(words);
        if (num_told > 0 && words.empty()) over.set_value();
        ++num_told;
      },
      0);
  run_ranks(2, [&](Communicator& communicator) {
    if (communicator.rank() == 1) {
      EXPECT_THAT(missed.get_future().get(),
                  AllOf(HasSubstr("all_reduce #0"), HasSubstr("rank 1 is missing")));
    }
    communicator.all_reduce(Tensor::from(std::vector<float>{1, 2}, {2})).wait();
  });
  over.get_future().get();
}

TEST(SlowCollectiveNotice, SaysNothingOfShortWaits) {
  const SlowCollectiveNotice watch([](const std::string& words) { ADD_FAILURE() << words; }, 1e6);
  run_ranks(4, [](Communicator& communicator) { communicator.barrier().wait(); });
}

}  // namespace
}  // namespace lockstep::comm
