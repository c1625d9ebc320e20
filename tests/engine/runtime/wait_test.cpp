#include "engine/runtime/wait.h"

#include <gtest/gtest.h>

#include <limits>
#include <thread>
#include <vector>

namespace lockstep::runtime {
namespace {

TEST(WaitWord, AWaitEndsAtItsDeadline) {
  WaitWord word(3);
  const auto deadline = deadline_after(0.01);
  EXPECT_FALSE(word.wait_while_equal(3, deadline));
  EXPECT_GE(Clock::now(), *deadline);
}

TEST(Deadline, NoTimeMeansForEver) {
  EXPECT_FALSE(deadline_after(std::optional<double>()).has_value());
  EXPECT_FALSE(has_passed({}));
  EXPECT_TRUE(has_passed(deadline_after(-1)));
  EXPECT_FALSE(has_passed(deadline_after(60)));
}

TEST(Deadline, TheEarlierOfTwoEnds) {
  const Deadline soon = deadline_after(1);
  const Deadline late = deadline_after(2);
  EXPECT_EQ(earlier(soon, late), soon);
  EXPECT_EQ(earlier(late, soon), soon);
  EXPECT_EQ(earlier({}, soon), soon);
  EXPECT_EQ(earlier(soon, {}), soon);
  EXPECT_FALSE(earlier({}, {}).has_value());
}

TEST(Deadline, TheTimeUntilThenIsBounded) {
  using std::chrono::seconds;
  EXPECT_EQ(time_until({}, seconds(3)), seconds(3));
  EXPECT_EQ(time_until(deadline_after(60), seconds(3)), seconds(3));
  EXPECT_EQ(time_until(deadline_after(-1), seconds(3)), seconds(0));
  EXPECT_GT(time_until(deadline_after(60)), seconds(3));
}

TEST(Deadline, NeverHasTooFewMillisecondsForPoll) {
  EXPECT_EQ(milliseconds_until({}), -1);
  EXPECT_EQ(milliseconds_until(deadline_after(-1)), 0);
  EXPECT_EQ(milliseconds_until(Clock::now() + std::chrono::hours(1'000'000)), 864'000'000);
  const Deadline soon = deadline_after(60);
  const int milliseconds = milliseconds_until(soon);
  EXPECT_GE(Clock::now() + std::chrono::milliseconds(milliseconds), *soon);
}

TEST(WaitWord, EverySleeperWakesWhenTheWordChanges) {
  WaitWord word(0), sleeping(0);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      sleeping.add(1);
      EXPECT_TRUE(word.wait_while_equal(0));
    });
  }
  for (auto seen = sleeping.load(); seen != 4; seen = sleeping.load()) {
    sleeping.wait_while_equal(seen);
  }
  // Long past the bounded spin, so that the waiters sleep in the kernel.
  EXPECT_FALSE(WaitWord(0).wait_while_equal(0, deadline_after(0.05)));
  word.store(1);
  for (auto& thread : threads) thread.join();
}

// Two threads hand a turn to each other; a lost wake-up would take a second each time.
TEST(WaitWord, ThousandsOfHandOversLoseNoWakeUp) {
  WaitWord turn(0);
  constexpr std::uint32_t kTurns = 20'000;
  int shared = 0;  // unprotected but for the turns
  std::thread other([&] {
    for (std::uint32_t i = 1; i < kTurns; i += 2) {
      while (turn.load() != i) turn.wait_while_equal(i - 1);
      ++shared;
      turn.store(i + 1);
    }
  });
  for (std::uint32_t i = 0; i < kTurns; i += 2) {
    while (turn.load() != i) turn.wait_while_equal(i - 1);
    ++shared;
    turn.store(i + 1);
  }
  other.join();
  EXPECT_EQ(shared, static_cast<int>(kTurns));
}

TEST(SpinUntil, LooksOnceInAThreadThatNeverSpins) {
  std::thread([] {
    never_spin();
    int calls = 0;
    EXPECT_FALSE(spin_until([&] { return ++calls < 0; }));
    EXPECT_EQ(calls, 1);
  }).join();
}

}  // namespace
}  // namespace lockstep::runtime
