// How threads wait for each other: spin for a bounded time, then sleep in the kernel.
//
// Spinning makes a hand-over between two running threads cost a cache miss instead of a system
// call; sleeping keeps eight ranks on two cores from burning each other's time. Every spin yields
// now and then, so a peer without a core of its own can get one.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

namespace lockstep::runtime {

using Clock = std::chrono::steady_clock;
using Deadline = std::optional<Clock::time_point>;  // none: wait for ever

// seconds from now.
Deadline deadline_after(double seconds);

// A 32-bit word that threads wait on. Any number of waiters; any thread may change it.
class WaitWord {
 public:
  explicit WaitWord(std::uint32_t value = 0) : value_(value) {}

  std::uint32_t load() const { return value_.load(std::memory_order_acquire); }

  // Stores or adds, then wakes sleepers if there are any.
  void store(std::uint32_t value);
  std::uint32_t add(std::uint32_t difference);  // returns the new value

  // Adds only if the word is at least `minimum`; says whether it did.
  bool add_if_at_least(std::uint32_t minimum, std::uint32_t difference);

  // Returns when the word differs from `seen`, or when the deadline has passed (false).
  bool wait_while_equal(std::uint32_t seen, Deadline deadline = {}) const;

 private:
  void wake() const;

  std::atomic<std::uint32_t> value_;
  mutable std::atomic<std::uint32_t> sleepers_{0};
};

// Spins until done() is true; gives up after the bounded spin and returns the last answer.
// For conditions over several words: the caller then sleeps on one of them.
template <typename Condition>
bool spin_until(const Condition& done);

// One polite spin iteration; `round` counts them.
void spin_pause(unsigned round);
inline constexpr unsigned kSpinRounds = 2000;

template <typename Condition>
bool spin_until(const Condition& done) {
  for (unsigned round = 0; round < kSpinRounds; ++round) {
    if (done()) return true;
    spin_pause(round);
  }
  return done();
}

}  // namespace lockstep::runtime
