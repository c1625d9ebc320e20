#include "engine/data/data_loader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>

#include "engine/core/error.h"
#include "tests/support/expect_error.h"

namespace lockstep::data {
namespace {

using lockstep::testing::expect_error;

// Produces 0, 1, ... count - 1.
Prefetcher<int>::Produce count_to(int count) {
  return [i = 0, count]() mutable { return i < count ? std::optional(i++) : std::nullopt; };
}

TEST(Prefetcher, HandsOverEveryItemInOrderThenNothing) {
  for (const std::size_t capacity : {1u, 2u, 3u, 64u}) {
    Prefetcher<int> prefetcher(count_to(1000), capacity);
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(prefetcher.next(), i);
    EXPECT_EQ(prefetcher.next(), std::nullopt);
    EXPECT_EQ(prefetcher.next(), std::nullopt);
  }
}

TEST(Prefetcher, MakesNoMoreThanItsCapacityAhead) {
  std::atomic<int> num_made{0};
  std::promise<void> three_made;
  {
    Prefetcher<int> prefetcher(
        [&]() -> std::optional<int> {
          const int i = num_made++;
          if (i == 2) three_made.set_value();
          return i;
        },
        3);
    three_made.get_future().wait();
  }
  EXPECT_EQ(num_made, 3);
}

TEST(Prefetcher, PassesAnErrorOnInItsPlace) {
  Prefetcher<int> prefetcher(
      [i = 0]() mutable -> std::optional<int> {
        if (i == 2) fail(ErrorCode::Io, "read", "the file ended");
        return i++;
      },
      8);
  EXPECT_EQ(prefetcher.next(), 0);
  EXPECT_EQ(prefetcher.next(), 1);
  expect_error(ErrorCode::Io, "the file ended", [&] { prefetcher.next(); });
  expect_error(ErrorCode::Io, "the file ended", [&] { prefetcher.next(); });
}

TEST(Prefetcher, ShutsDownAtAnyTime) {
  for (int i = 0; i < 200; ++i) {
    Prefetcher<int> endless([]() -> std::optional<int> { return 1; }, 2);
    Prefetcher<int> ended(count_to(i % 3), 2);
    if (i % 2 == 0) {
      EXPECT_EQ(endless.next(), 1);
    }
  }
}

}  // namespace
}  // namespace lockstep::data
