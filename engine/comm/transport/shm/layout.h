// What lies where in the segment of a group of n ranks. Every flag has one writer.
//
//   Failure            the group's failure
//   Member[n]          what each rank tells all others
//   Channel[n * n]     messages of collectives, by sender and receiver
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
#include "engine/comm/transport/shm/doorbell.h"
#include "engine/comm/transport/transport.h"

namespace lockstep::comm::shm {

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
};

struct Channel {
  std::array<MessageSlot, kMaxOpenMessages> slots;
  Flag<Ticket> num_released;
};

// All zeros is the right initial state of everything in here.
class Layout {
 public:
  explicit Layout(int world_size);

  std::size_t num_bytes() const { return num_bytes_; }
  // Of one message.
  std::size_t slot_bytes() const { return slot_bytes_; }

  enum class Use : std::size_t { collective, letter };
  Failure& failure(std::byte* segment) const;
  Member& member(std::byte* segment, int rank) const;
  Channel& channel(std::byte* segment, Use use, int from, int to) const;
  std::byte* slot(std::byte* segment, Use use, int from, int to, Ticket number) const;

 private:
  std::size_t index(Use use, int from, int to) const {
    return (static_cast<std::size_t>(use) * num_ranks_ + static_cast<std::size_t>(from)) *
               num_ranks_ +
           static_cast<std::size_t>(to);
  }

  std::size_t num_ranks_;
  std::size_t slot_bytes_;
  std::size_t members_at_;
  std::size_t channels_at_;
  std::size_t slots_at_;
  std::size_t num_bytes_;
};

}  // namespace lockstep::comm::shm
