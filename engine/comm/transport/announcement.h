// What ranks with common memory tell each other before a collective: flags on cache lines of their
// own, and a rank's current call in one of them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "engine/comm/collective_call.h"

namespace lockstep::comm {

inline constexpr std::size_t kCacheLine = 64;

// A rank's call, published with its number (sequence + 1; 0: none yet) in one cache line. The words
// are atomic so that an error message may read a call that is being replaced.
class alignas(kCacheLine) Announcement {
 public:
  void publish(const CallHeader& call);
  std::uint64_t number() const { return number_.load(std::memory_order_seq_cst); }
  CallHeader call() const;

 private:
  std::atomic<std::uint64_t> number_{0};
  std::atomic<std::uint64_t> num_elements_{0};
  std::atomic<void*> memory_{nullptr};
  std::atomic<std::uint64_t> kind_{0};  // root, plan, op, dtype, device, operation
};

template <typename T>
struct alignas(kCacheLine) Flag {
  std::atomic<T> value{0};
};

}  // namespace lockstep::comm
