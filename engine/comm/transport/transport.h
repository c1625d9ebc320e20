// Transport: one rank's links to all others, the half of a communicator that moves bytes. The other
// half is a plan, which says what to move.
//
// A collective uses it in this order:
//   announce(call)                  tell everybody what this rank was called with
//   announced_by(peer) for all      compare; on a difference, fail()
//   begin_data()                    from here on peers may read what this rank posts
//   begin_step / post / take / release / wait_sent, step by step
//   end_data()
// When an error leaves this sequence anywhere, abandon() takes the place of the rest.
// A transport may hand out its peer's memory itself (threads), a copy in shared memory, or what a
// socket brought: take() returns a pointer that is valid until release().
//
// Messages from one rank to another arrive in the order in which they were posted. All waits end
// with Error{Timeout} after the time limit of the collective, and with the group's failure as soon
// as there is one. A failure is for ever.
// Threads: one thread at a time, but for fail() and missing_ranks().
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "engine/comm/collective_call.h"
#include "engine/comm/transport/address_space.h"
#include "engine/core/error.h"

namespace lockstep::comm {

// Most messages that may be posted to one rank and not yet released by it.
inline constexpr std::size_t kMaxOpenMessages = 8;

// Numbers the messages to one rank.
using Ticket = std::uint64_t;

using Bytes = std::span<const std::byte>;

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual std::string_view name() const = 0;  // "thread"
  // A number for the host of every rank, the same for ranks of one host. Empty: all ranks reach
  // each other alike.
  virtual std::span<const int> hosts() const { return {}; }

  // --- agreeing on a call ---
  // On the thread that makes a call, before another one may carry it out: for transports that model
  // when it can begin. Any thread, at any time.
  virtual void note_call(const CallHeader&) {}
  // Tells all ranks, without waiting for them. Throws the group's failure if there is one.
  virtual void announce(const CallHeader& call, double timeout_seconds) = 0;
  // Waits for the peer's call with the sequence number of the last announce(), and returns it.
  virtual CallHeader announced_by(int peer) = 0;

  // --- moving data ---
  virtual void begin_data() = 0;
  virtual void end_data() = 0;
  // After an error: fails the group if nobody has, and returns when no peer uses this rank's memory
  // any more (each of them is done with its current copy or sum, and sees the failure then).
  virtual void abandon(const Error& error) noexcept = 0;

  // Bytes of the largest message; larger chunks travel in pieces of this size. Above 0.
  virtual std::size_t max_message_bytes() const { return std::numeric_limits<std::size_t>::max(); }
  // Bytes of a buffer that best go through all steps of a plan before the next ones do, because
  // what one step leaves in a cache the next one finds there.
  virtual std::size_t pass_bytes() const { return std::numeric_limits<std::size_t>::max(); }
  // What is posted from here on, until the next call, could leave now: the messages of one step of
  // a plan, and all pieces of them. For transports that model when a message arrives.
  virtual void begin_step() {}
  // Offers data to a rank. It must stay as it is until wait_sent(to, ticket) has returned. Waits
  // only while kMaxOpenMessages are on their way to this rank.
  virtual Ticket post(int to, Bytes data) = 0;
  virtual void wait_sent(int to, Ticket ticket) = 0;
  // Waits for the next message from a rank. Several messages from different ranks, and one from
  // each, may be held at a time.
  // Throws Error{Comm} when it has another size.
  virtual const std::byte* take(int from, std::size_t num_bytes) = 0;
  virtual void release(int from) = 0;

  // Memory of this transport that lives as long as the group, to post from. Its contents survive
  // until the second next call, which waits for the messages that were posted from it.
  virtual std::byte* staging(std::size_t num_bytes) = 0;
  // Says that a message was posted from the staging memory last returned.
  virtual void posted_from_staging(int to, Ticket ticket) = 0;

  // What else the ranks can do because they are in one address space; nullptr where they are not,
  // or shall be as if they were not. Without it only CPU tensors are moved.
  virtual AddressSpace* address_space() { return nullptr; }

  // --- point to point, beside the collectives ---
  // Copies the data; does not wait for the receiver.
  virtual void send_message(int to, const CallHeader& call, Bytes data) = 0;
  // Waits for the next message of a rank. Throws Error{Comm}, and fails the group, when it differs
  // from the call in size or dtype.
  virtual void receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                               double timeout_seconds) = 0;

  // --- failing ---
  // Breaks the group: every pending and later call of every rank throws this error. The first one
  // stays.
  virtual void fail(const Error& error) = 0;
  // Throws the group's failure, if there is one.
  virtual void throw_if_failed() const = 0;
  // Breaks the group, and throws what broke it: this error, or one that came before.
  [[noreturn]] void fail_and_throw(const Error& error);
  // Ranks that have not announced a call with this sequence number, and what each rank called
  // last, in words: "rank 2 is missing (its last call: barrier #6)". Empty if nobody is missing.
  virtual std::string describe_missing(std::uint64_t sequence) const = 0;
};

}  // namespace lockstep::comm
