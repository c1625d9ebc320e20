#include "engine/comm/transport/arena/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace lockstep::comm::arena {

void Doorbell::sleep(std::uint32_t seen, std::chrono::nanoseconds at_most) const {
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t) &&
                std::atomic<std::uint32_t>::is_always_lock_free);
  const timespec timeout{static_cast<time_t>(at_most.count() / 1'000'000'000),
                         static_cast<long>(at_most.count() % 1'000'000'000)};
  syscall(SYS_futex, &rings_, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

void Doorbell::wake() {
  rings_.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &rings_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace lockstep::comm::arena
