#include "engine/runtime/wait.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <thread>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace lockstep::runtime {
namespace {

long futex(const std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout) {
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
  // Not a private futex, since processes may share the word's memory.
  return syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

// Longest single sleep: a lost wake-up (none is known) would cost so much instead of a hang.
constexpr auto kLongestSleep = std::chrono::seconds(1);

thread_local bool this_thread_may_spin = true;

}  // namespace

Deadline deadline_after(double seconds) {
  if (!std::isfinite(seconds) || seconds > 1e9) return {};
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

Clock::duration time_until(Deadline deadline, Clock::duration at_most) {
  if (!deadline) return at_most;
  return std::clamp(*deadline - Clock::now(), Clock::duration::zero(), at_most);
}

int milliseconds_until(Deadline deadline) {
  if (!deadline) return -1;
  constexpr std::chrono::hours kLongest{240};  // its milliseconds fit an int
  const auto time = time_until(deadline, kLongest);
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(time).count());
}

void never_spin() {
  this_thread_may_spin = false;
}

bool may_spin() {
  return this_thread_may_spin;
}

void spin_pause(unsigned round, unsigned rounds_per_yield) {
  if ((round + 1) % rounds_per_yield == 0) {
    sched_yield();
    return;
  }
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void poll_pause(unsigned round) {
  constexpr std::chrono::microseconds kPause{50};
  if (round < kSpinOnOwnCore.num_rounds && may_spin()) return spin_pause(round);
  std::this_thread::sleep_for(kPause);
}

void WaitWord::wake() const {
  // Pairs with the fence-like increment in wait_while_equal: either the sleeper is seen here, or
  // the sleeper sees the new value and does not sleep.
  if (sleepers_.load(std::memory_order_seq_cst) != 0) futex(value_, FUTEX_WAKE, INT32_MAX, nullptr);
}

void WaitWord::store(std::uint32_t value) {
  value_.store(value, std::memory_order_seq_cst);
  wake();
}

std::uint32_t WaitWord::add(std::uint32_t difference) {
  const std::uint32_t result = value_.fetch_add(difference, std::memory_order_seq_cst) + difference;
  wake();
  return result;
}

bool WaitWord::add_if_at_least(std::uint32_t minimum, std::uint32_t difference) {
  std::uint32_t value = value_.load(std::memory_order_acquire);
  while (value >= minimum) {
    if (value_.compare_exchange_weak(value, value + difference, std::memory_order_seq_cst)) {
      wake();
      return true;
    }
  }
  return false;
}

bool WaitWord::wait_while_equal(std::uint32_t seen, Deadline deadline) const {
  return spin_until([&] { return load() != seen; }) || sleep_while_equal(seen, deadline);
}

bool WaitWord::sleep_while_equal(std::uint32_t seen, Deadline deadline) const {
  while (load() == seen) {
    const std::chrono::nanoseconds sleep = time_until(deadline, kLongestSleep);
    if (sleep.count() == 0) return false;
    const timespec timeout{static_cast<time_t>(sleep.count() / 1'000'000'000),
                           static_cast<long>(sleep.count() % 1'000'000'000)};
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    if (value_.load(std::memory_order_seq_cst) == seen) futex(value_, FUTEX_WAIT, seen, &timeout);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }
  return true;
}

}  // namespace lockstep::runtime
