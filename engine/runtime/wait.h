// How threads wait for each other: spin for a bounded time, then sleep in the kernel.
//
// Spinning makes a hand-over between two running threads cost a cache miss instead of a system
// call; sleeping keeps eight ranks on two cores from wasting each other's time. Every spin yields
// now and then, so that a peer without a core of its own can get one.
//
// A thread that shares its core with a computing thread should not spin at all: it takes that
// core's time, and Linux counts each yield against it, so that it wakes up late next time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

namespace lockstep::runtime {

using Clock = std::chrono::steady_clock;
using Deadline = std::optional<Clock::time_point>;  // nullopt: wait forever

// seconds from now. A time that a clock cannot hold, or nullopt, means forever.
Deadline deadline_after(double seconds);
inline Deadline deadline_after(std::optional<double> seconds) {
  return seconds ? deadline_after(*seconds) : Deadline{};
}
inline bool has_passed(Deadline deadline) {
  return deadline && Clock::now() >= *deadline;
}
// The earlier deadline.
inline Deadline earlier(Deadline a, Deadline b) {
  return !a || (b && *b < *a) ? b : a;
}
// The time left until then: at least zero, at most at_most.
Clock::duration time_until(Deadline deadline, Clock::duration at_most = Clock::duration::max());
// The same for poll(): in milliseconds, rounded up; -1: forever.
int milliseconds_until(Deadline deadline);

// A 32-bit word that threads wait on. Any number of threads may wait; any thread may change it.
class WaitWord {
 public:
  explicit WaitWord(std::uint32_t value = 0) : value_(value) {}

  std::uint32_t load() const { return value_.load(std::memory_order_acquire); }

  // Stores or adds, then wakes any sleepers.
  void store(std::uint32_t value);
  std::uint32_t add(std::uint32_t difference);  // returns the new value

  // Adds only if the word is at least `minimum`; returns true if it did.
  bool add_if_at_least(std::uint32_t minimum, std::uint32_t difference);

  // Returns when the word differs from `seen`, or false when the deadline has passed.
  bool wait_while_equal(std::uint32_t seen, Deadline deadline = {}) const;
  // The same without spinning first.
  bool sleep_while_equal(std::uint32_t seen, Deadline deadline = {}) const;

 private:
  void wake() const;

  std::atomic<std::uint32_t> value_;
  mutable std::atomic<std::uint32_t> sleepers_{0};
};

// From now on every wait of the calling thread sleeps at once.
void never_spin();
bool may_spin();

// How long a thread spins before it sleeps, and in how many rounds it yields its core once.
struct Spin {
  unsigned num_rounds;
  unsigned rounds_per_yield;
};
// It has a core of its own.
inline constexpr Spin kSpinOnOwnCore{2000, 32};
// Its peers wait, too, and share its core: one that it waits for may need the core to go on.
inline constexpr Spin kTakeTurns{200, 1};
// Threads that compute share its core.
inline constexpr Spin kSpinBesideComputation{64, 32};

// One polite spin iteration; `round` counts them.
void spin_pause(unsigned round, unsigned rounds_per_yield = kSpinOnOwnCore.rounds_per_yield);

// Spins until done() is true; gives up after the bounded spin and returns the last answer.
// For conditions over several words: the caller then sleeps on one of them.
template <typename Condition>
bool spin_until(const Condition& done, Spin spin = kSpinOnOwnCore) {
  if (done()) return true;
  if (!may_spin()) return false;
  for (unsigned round = 0; round < spin.num_rounds; ++round) {
    spin_pause(round, spin.rounds_per_yield);
    if (done()) return true;
  }
  return false;
}

// Waits between two looks at something that wakes no thread when it changes, such as a library's
// request: first like a spin, then asleep for a moment. `round` counts the looks.
void poll_pause(unsigned round);

}  // namespace lockstep::runtime
