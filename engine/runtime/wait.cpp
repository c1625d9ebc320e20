#include "engine/runtime/wait.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace lockstep::runtime {
namespace {

long futex(const std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout) {
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
  return syscall(SYS_futex, &word, operation | FUTEX_PRIVATE_FLAG, value, timeout, nullptr, 0);
}

// Longest single sleep: a lost wake-up (there is none known) would cost this much, not a hang.
constexpr auto kLongestSleep = std::chrono::seconds(1);

}  // namespace

Deadline deadline_after(double seconds) {
  if (!std::isfinite(seconds) || seconds > 1e9) return {};
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

void spin_pause(unsigned round) {
  if (round % 32 == 31) {
    sched_yield();
    return;
  }
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
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
  if (spin_until([&] { return load() != seen; })) return true;
  while (load() == seen) {
    auto sleep = std::chrono::duration_cast<std::chrono::nanoseconds>(kLongestSleep);
    if (deadline) {
      const auto left = *deadline - Clock::now();
      if (left <= Clock::duration::zero()) return false;
      sleep = std::min(sleep, std::chrono::duration_cast<std::chrono::nanoseconds>(left));
    }
    const timespec timeout{static_cast<time_t>(sleep.count() / 1'000'000'000),
                           static_cast<long>(sleep.count() % 1'000'000'000)};
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    if (value_.load(std::memory_order_seq_cst) == seen) futex(value_, FUTEX_WAIT, seen, &timeout);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }
  return true;
}

}  // namespace lockstep::runtime
