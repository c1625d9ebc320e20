#include "engine/comm/first_failure.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/support/expect_error.h"

namespace lockstep::comm {
namespace {

TEST(FirstFailure, IsNothingUntilSomethingFails) {
  const FirstFailure failure;
  EXPECT_FALSE(failure.is_set());
  EXPECT_NO_THROW(failure.throw_if_set());
}

TEST(FirstFailure, TheFirstErrorStays) {
  FirstFailure failure;
  EXPECT_TRUE(failure.set(Error(ErrorCode::Timeout, "all_reduce", "rank 1 is missing")));
  EXPECT_FALSE(failure.set(Error(ErrorCode::Comm, "abort", "rank 2 is gone too")));
  EXPECT_TRUE(failure.is_set());
  EXPECT_STREQ(failure.error().what(), "[all_reduce] rank 1 is missing");
  testing::expect_error(ErrorCode::Timeout, "[all_reduce] rank 1 is missing",
                        [&] { failure.throw_if_set(); });
}

TEST(FirstFailure, OfManyThatFailAtOnceOneIsTheFirst) {
  FirstFailure failure;
  std::atomic<int> first{-1};
  std::atomic<int> num_first{0};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 8; ++rank) {
    ranks.emplace_back([&, rank] {
      if (!failure.set(Error(ErrorCode::Comm, "test", std::to_string(rank)))) return;
      first = rank;
      ++num_first;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(num_first.load(), 1);
  EXPECT_EQ(failure.error().message(), std::to_string(first.load()));
}

}  // namespace
}  // namespace lockstep::comm
