// Group: one rank's side of a group, which is what a PlanCommunicator asks of the way in which the
// ranks reach each other. Ranks that are threads read each other's memory (thread_group.cpp); ranks
// that are processes exchange messages (message_group.h).
//
// A collective uses it in this order:
//   announce(call)                  tell everybody what this rank was called with
//   announced_by(peer) for all      compare; on a difference, fail_and_throw()
//   run(call, memory)               move the data
// When an error leaves this sequence anywhere, abandon() takes the place of the rest.
//
// All waits end with Error{Timeout} after the time limit of the call, and with the group's failure
// as soon as there is one. A failure is for ever.
// Threads: one thread at a time, but for note_call(), fail() and describe_missing().
#pragma once

#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/comm/link.h"

namespace lockstep::comm {

struct GroupShape {
  int rank = 0;
  int world_size = 1;
  std::string name;        // "thread", "shm behind a modelled link (50us,1GB/s)"
  std::vector<int> hosts;  // a number for the host of every rank; empty: all reach each other alike
  // Ranks read and write each other's tensors, on the CPU and on CUDA devices.
  bool shares_memory = false;
  bool has_links = false;  // modelled ones
};

// The same group behind modelled links.
inline GroupShape behind(const LinkModel& links, GroupShape shape) {
  shape.name += " behind a modelled link (" + links.description() + ")";
  if (!links.hosts().empty()) shape.hosts.assign(links.hosts().begin(), links.hosts().end());
  shape.shares_memory = false;
  shape.has_links = true;
  return shape;
}

class Group {
 public:
  explicit Group(GroupShape shape) : shape_(std::move(shape)) {}
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const GroupShape& shape() const { return shape_; }
  int rank() const { return shape_.rank; }
  int world_size() const { return shape_.world_size; }

  // On the thread that makes a call, before another one may carry it out.
  virtual void note_call(const CallHeader&) {}
  // Tells all ranks, without waiting for them. Throws the group's failure if there is one.
  virtual void announce(const CollectiveCall& call) = 0;
  // Waits for the peer's call with the sequence number of the last announce(), and returns it.
  virtual CallHeader announced_by(int peer) = 0;
  // Moves the data of a call that all ranks have made alike. memory[r]: CallHeader::memory of rank
  // r. Returns the bytes that this rank sent.
  virtual std::size_t run(const CollectiveCall& call, std::span<void* const> memory) = 0;
  // After an error: fails the group if it has not failed yet, and returns when no peer uses this
  // rank's memory any more.
  virtual void abandon(const Error& error) noexcept = 0;

  // Point to point, beside the collectives. send does not wait for the receiver. receive throws
  // Error{Comm}, and fails the group, for a message of another size, dtype or type of device.
  virtual void send(const CollectiveCall& call) = 0;
  virtual void receive(const CollectiveCall& call) = 0;

  // Breaks the group: every pending and later call of every rank throws this error. The first one
  // stays.
  virtual void fail(const Error& error) noexcept = 0;
  virtual void throw_if_failed() const = 0;
  // Ranks that have not announced a call with this sequence number, and what each rank called
  // last, in words: "rank 2 is missing (its last call: barrier #6)". Empty when none is missing.
  virtual std::string describe_missing(std::uint64_t sequence) const = 0;

  // Breaks the group, and throws what broke it: this error, or one that came before.
  [[noreturn]] void fail_and_throw(const Error& error) {
    fail(error);
    throw_if_failed();
    std::abort();  // not reached: a group that failed throws
  }

 private:
  GroupShape shape_;
};

}  // namespace lockstep::comm
