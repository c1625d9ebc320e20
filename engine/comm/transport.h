// Transport: how the bytes of one rank reach the ranks of other processes. shm_group, tcp and
// shm_and_tcp implement it; message_group.h runs plans over it, and models links over it.
// Ranks that are threads do not use it (thread_group.cpp).
//
// A collective uses it in this order:
//   announce(call)                  tell everybody what this rank was called with
//   announced_by(peer) for all      the communicator compares; on a difference it calls fail()
//   post / take / release           piece by piece, step by step
// Any error that leaves this sequence is followed by fail().
//
// Messages from one rank to another arrive in the order in which they were posted. All waits end
// with Error{Timeout} after the time limit of the last announce() or receive_message(), and with
// the group's failure as soon as there is one. A failure is for ever.
// A destructor delivers what was posted and sent, for a bounded time, then leaves the group: peers
// that still need this rank fail with RankWait::left().
// Threads: one thread at a time, but for fail(), throw_if_failed() and describe_missing().
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "engine/comm/collective_call.h"
#include "engine/core/error.h"

namespace lockstep::comm {

// Properties of one rank's transport that never change.
struct TransportShape {
  int rank = 0;
  int world_size = 1;
  std::string name;  // "tcp"
  // The largest message that may be posted; larger chunks travel in pieces of this size. Above 0.
  std::size_t max_message_bytes = std::numeric_limits<std::size_t>::max();
  // So many bytes of a buffer best go through all steps of a plan before the next ones do, because
  // what one step leaves in a cache the next one finds there.
  std::size_t pass_bytes = std::numeric_limits<std::size_t>::max();
  // A number for the host of every rank, the same for ranks of one host. Empty: all reach each
  // other alike.
  std::vector<int> hosts;
};

class Transport {
 public:
  explicit Transport(TransportShape shape) : shape_(std::move(shape)) {}
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  const TransportShape& shape() const { return shape_; }
  int rank() const { return shape_.rank; }
  int world_size() const { return shape_.world_size; }

  // Tells all ranks, without waiting for them. Throws the group's failure if there is one.
  virtual void announce(const CallHeader& call, double timeout_seconds) = 0;
  // Waits for the peer's call with the sequence number of the last announce(), and returns it.
  virtual CallHeader announced_by(int peer) = 0;

  // Sends a message. When it returns, the data may change: it has been copied, or the kernel has
  // it. May wait for the receiver, but each pair of ranks has room for at least one whole message
  // that its receiver has not taken yet, and a rank that waits goes on receiving. (So ranks that
  // all post, then all take, never wait for each other in a circle.)
  virtual void post(int to, Bytes data) = 0;
  // Waits for the next message from a rank; valid until release(from). One message from each of
  // several ranks may be held at a time.
  // Throws Error{Comm}, and fails the group, when it has another size (RankWait::found_bytes).
  virtual const std::byte* take(int from, std::size_t num_bytes) = 0;
  virtual void release(int from) = 0;

  // Point to point, beside the collectives. Copies the data; does not wait for the receiver.
  virtual void send_message(int to, const CallHeader& call, Bytes data) = 0;
  // Waits for the next message of a rank. Throws Error{Comm}, and fails the group, when it differs
  // from the call in size or dtype (describe_difference).
  virtual void receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                               double timeout_seconds) = 0;

  // Breaks the group: every pending and later call of every rank throws this error. The first one
  // stays. Never throws.
  virtual void fail(const Error& error) noexcept = 0;
  virtual void throw_if_failed() const = 0;
  // Ranks that have not announced a call with this sequence number, and what each called last:
  // "rank 2 is missing (its last call: barrier #6)". Empty when none is missing.
  virtual std::string describe_missing(std::uint64_t sequence) const = 0;

  // Breaks the group, and throws what broke it: this error, or one that came before.
  [[noreturn]] void fail_and_throw(const Error& error) {
    fail(error);
    throw_if_failed();
    std::abort();  // not reached: a group that failed throws
  }

 protected:
  void set_shape(TransportShape shape) { shape_ = std::move(shape); }

 private:
  TransportShape shape_;
};

}  // namespace lockstep::comm
