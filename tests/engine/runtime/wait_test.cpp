#include "engine/runtime/wait.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace lockstep::runtime {
namespace {

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

}  // namespace
}  // namespace lockstep::runtime
