// What lies where in the arena of a group of n ranks. Every flag has one writer.
//
//   Failure            the group's failure
//   Member[n]          what each rank tells all others
//   Channel[n * n]     messages of collectives, by sender and receiver
// and where messages are copied, since ranks cannot read each other's memory:
//   Channel[n * n]     letters: pieces of what send() sends
//   slots              the memory of those messages, kMaxOpenMessages for each channel
// Pages that nobody writes cost nothing, so the largest group shares this layout too.
#pragma once

#include <sched.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "engine/comm/transport/announcement.h"
#include "engine/comm/transport/arena/doorbell.h"
#include "engine/comm/transport/transport.h"

namespace lockstep::comm::arena {

struct alignas(kCacheLine) Failure {
  enum State : std::uint32_t { none, being_written, written };
  std::atomic<std::uint32_t> state{none};
  std::uint32_t num_bytes = 0;
  char error[1 << 11] = {};  // encoded (error_bytes.h), cut off if need be
};

struct Member {
  Announcements announced;
  Flag<std::uint32_t> has_attached;
  Flag<std::uint32_t> has_left;
  Flag<std::uint32_t> in_data;          // 1 while it may read what others lend it
  Flag<std::uint64_t> finished_shared;  // number of the last call in which it was called
  // 1 + the rank that it sleeps for; 0: for nobody; -1 - r: for rank r elsewhere.
  Flag<std::int32_t> waits_for;
  // When a rank that sleeps last looked whether it must, in nanoseconds of runtime::Clock, which is
  // the same for all processes of a host.
  Flag<std::int64_t> looked_at;
  std::int32_t process = 0;  // written before has_attached, as is:
  cpu_set_t cores;           // that it may run on
  alignas(kCacheLine) Doorbell doorbell;
};

struct alignas(kCacheLine) MessageSlot {
  std::atomic<Ticket> number{0};  // of the message in it, counted from 1
  std::size_t num_bytes = 0;
  std::uintptr_t place = 0;  // of its first byte, counted from where the arena begins
};

struct Channel {
  std::array<MessageSlot, kMaxOpenMessages> slots;
  Flag<Ticket> num_released;
};

// How messages travel: the receiver reads the sender's memory, or a slot of the arena.
enum class Messages { lent, copied };

// All zeros is the right initial state of everything in here.
class Layout {
 public:
  Layout(int world_size, Messages messages);

  std::size_t num_bytes() const { return num_bytes_; }
  // Of one message that is copied.
  std::size_t slot_bytes() const { return slot_bytes_; }

  enum class Use : std::size_t { collective, letter };
  Failure& failure(std::byte* arena) const { return *reinterpret_cast<Failure*>(arena); }
  Member& member(std::byte* arena, int rank) const {
    return reinterpret_cast<Member*>(arena + kMembersAt)[rank];
  }
  Channel& channel(std::byte* arena, Use use, int from, int to) const {
    return reinterpret_cast<Channel*>(arena + channels_at_)[index(use, from, to)];
  }
  std::byte* slot(std::byte* arena, Use use, int from, int to, Ticket number) const {
    const std::size_t turn = (number - 1) % kMaxOpenMessages;
    return arena + slots_at_ + (index(use, from, to) * kMaxOpenMessages + turn) * slot_bytes_;
  }

 private:
  std::size_t index(Use use, int from, int to) const {
    return (static_cast<std::size_t>(use) * num_ranks_ + static_cast<std::size_t>(from)) *
               num_ranks_ +
           static_cast<std::size_t>(to);
  }

  static constexpr std::size_t kMembersAt = sizeof(Failure);
  std::size_t num_ranks_;
  std::size_t slot_bytes_;
  std::size_t channels_at_;
  std::size_t slots_at_;
  std::size_t num_bytes_;
};

}  // namespace lockstep::comm::arena
