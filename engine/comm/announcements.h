// Flags and queues through which ranks see each other's calls. They also work in memory that
// processes share.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <type_traits>

#include "engine/comm/collective_call.h"

namespace lockstep::comm {

inline constexpr std::size_t kCacheLine = 64;

struct alignas(kCacheLine) CacheLine {
  std::byte bytes[kCacheLine];
};

template <typename T>
struct alignas(kCacheLine) Flag {
  std::atomic<T> value{0};
};

// A rank's call, published with its number (sequence + 1; 0: none yet) in one cache line. The words
// are atomic so that an error message may read a call that is being replaced.
class alignas(kCacheLine) Announcement {
 public:
  void publish(const CallHeader& call) {
    std::uint64_t words[kWords];
    std::memcpy(words, &call, sizeof words);
    for (std::size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_relaxed);
    number_.store(call.sequence + 1, std::memory_order_seq_cst);
  }
  std::uint64_t number() const { return number_.load(std::memory_order_seq_cst); }
  CallHeader call() const {
    std::uint64_t words[kWords];
    for (std::size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_relaxed);
    CallHeader call;
    std::memcpy(&call, words, sizeof words);
    return call;
  }

 private:
  static constexpr std::size_t kWords = sizeof(CallHeader) / sizeof(std::uint64_t);
  static_assert(std::is_trivially_copyable_v<CallHeader> &&
                sizeof(CallHeader) == kWords * sizeof(std::uint64_t));

  std::atomic<std::uint64_t> number_{0};
  std::array<std::atomic<std::uint64_t>, kWords> words_{};
};
static_assert(sizeof(Announcement) == kCacheLine);

// A rank's calls, in two places used in turn: a rank may announce its next call while a slow rank
// still reads this one.
class Announcements {
 public:
  void publish(const CallHeader& call) { places_[call.sequence % 2].publish(call); }
  // True if the rank has come to the call with this sequence number.
  bool has_reached(std::uint64_t sequence) const {
    return places_[sequence % 2].number() > sequence;
  }
  // That call. REQUIRES: the rank has come to it, and at most one call further.
  CallHeader call(std::uint64_t sequence) const { return places_[sequence % 2].call(); }
  // The last call; Operation::none before the first.
  CallHeader last() const {
    const Announcement& last = places_[places_[0].number() < places_[1].number() ? 1 : 0];
    return last.number() == 0 ? CallHeader{} : last.call();
  }

 private:
  std::array<Announcement, 2> places_;
};

// Items that one thread hands to another, in order.
template <typename T>
class Queue {
 public:
  void put(T item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
    size_.fetch_add(1, std::memory_order_seq_cst);
  }
  bool has_items() const { return size_.load(std::memory_order_seq_cst) != 0; }
  // REQUIRES: has_items().
  T take() {
    const std::lock_guard lock(mutex_);
    size_.fetch_sub(1, std::memory_order_seq_cst);
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

 private:
  std::mutex mutex_;
  std::deque<T> items_;
  std::atomic<std::size_t> size_{0};
};

}  // namespace lockstep::comm
