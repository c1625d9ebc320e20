// Flags through which ranks see each other's calls. They also work in memory that processes share.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
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

// A rank's calls, in two places used in turn: a rank may announce its next call while a slow rank
// still reads this one.
class Announcements {
 public:
  void publish(const CallHeader& call) {
    std::uint64_t words[kWords];
    std::memcpy(words, &call, sizeof words);
    Place& place = places_[call.sequence % 2];
    for (std::size_t i = 0; i < kWords; ++i) {
      place.words[i].store(words[i], std::memory_order_relaxed);
    }
    place.number.store(call.sequence + 1, std::memory_order_seq_cst);
  }
  // True if the rank has come to the call with this sequence number.
  bool has_reached(std::uint64_t sequence) const { return number_in(sequence % 2) > sequence; }
  // That call. REQUIRES: the rank has come to it, and at most one call further.
  CallHeader call(std::uint64_t sequence) const { return call_in(sequence % 2); }
  // The last call; Operation::none before the first.
  CallHeader last() const {
    const std::size_t last = number_in(0) < number_in(1) ? 1 : 0;
    return number_in(last) == 0 ? CallHeader{} : call_in(last);
  }

 private:
  static constexpr std::size_t kWords = sizeof(CallHeader) / sizeof(std::uint64_t);
  static_assert(std::is_trivially_copyable_v<CallHeader> &&
                sizeof(CallHeader) == kWords * sizeof(std::uint64_t));

  // A call with its number (sequence + 1; 0: none yet), in one cache line. The words are atomic so
  // that an error message may read a call that is being replaced.
  struct alignas(kCacheLine) Place {
    std::atomic<std::uint64_t> number{0};
    std::array<std::atomic<std::uint64_t>, kWords> words{};
  };
  static_assert(sizeof(Place) == kCacheLine);

  std::uint64_t number_in(std::size_t place) const {
    return places_[place].number.load(std::memory_order_seq_cst);
  }
  CallHeader call_in(std::size_t place) const {
    std::uint64_t words[kWords];
    for (std::size_t i = 0; i < kWords; ++i) {
      words[i] = places_[place].words[i].load(std::memory_order_relaxed);
    }
    CallHeader call;
    std::memcpy(&call, words, sizeof words);
    return call;
  }

  std::array<Place, 2> places_;
};

}  // namespace lockstep::comm
