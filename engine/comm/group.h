// Group: one rank's side of a group, which is what a PlanCommunicator asks of the way in which the
// ranks reach each other. Ranks that are threads read each other's memory (thread_group.cpp); ranks
// that are processes exchange messages (transport.h).
//
// A collective uses it in this order:
//   announce(call)                  tell all ranks what this one was called with
//   announced_by(peer) for all      compare; on a difference, fail_and_throw()
//   run_schedule(...)               move the data; or run_in_shared_memory(...)
// When an error leaves this sequence anywhere, abandon() takes the place of the rest.
//
// All waits end with Error{Timeout} after the time limit of the last announce() or
// receive_message(), and with the group's failure as soon as there is one. A failure is for ever.
// Threads: one thread at a time, but for fail(), throw_if_failed() and describe_missing().
#pragma once

#include <atomic>
#include <cstdlib>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "engine/comm/collective_call.h"
#include "engine/comm/comm_errors.h"
#include "engine/comm/reduce.h"
#include "engine/core/error.h"
#include "engine/runtime/steady_time.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {

class LinkClock;
using runtime::Time;

// Properties of a rank's group that never change.
struct GroupShape {
  int rank = 0;
  int world_size = 1;
  std::string name;  // "thread", "shm", "tcp"
  // The largest message; larger chunks travel in pieces of this size.
  std::size_t max_message_bytes = std::numeric_limits<std::size_t>::max();
  // So many bytes of a buffer best go through all steps of a plan before the next ones do, because
  // what one step leaves in a cache the next one finds there.
  std::size_t pass_bytes = std::numeric_limits<std::size_t>::max();
  std::vector<int> hosts;  // a number for the host of every rank; empty: all reach each other alike
  // Ranks read and write each other's tensors, on the CPU and on CUDA devices.
  bool shares_memory = false;
};

class Group {
 public:
  explicit Group(GroupShape shape) : shape_(std::move(shape)) {}
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const GroupShape& shape() const { return shape_; }
  int rank() const { return shape_.rank; }
  int world_size() const { return shape_.world_size; }

  // Tells all ranks, without waiting for them. Throws the group's failure if there is one.
  virtual void announce(const CallHeader& call, double timeout_seconds) = 0;
  // Waits for the peer's call with the sequence number of the last announce(), and returns it.
  virtual CallHeader announced_by(int peer) = 0;
  // Carries out all steps of a plan. clock: is told of each step before it begins; may be none.
  virtual void run_schedule(const plan::RankSchedule& schedule, TensorView buffer,
                            const Reduction& reduction, LinkClock* clock) = 0;
  // If shape().shares_memory: a two-shot all-reduce in one pass, or any call on CUDA tensors.
  // memory[r]: CallHeader::memory of rank r.
  virtual void run_in_shared_memory(const CollectiveCall& call, std::span<void* const> memory);
  // After an error: fails the group if it has not failed yet, and returns when no peer uses this
  // rank's memory any more.
  virtual void abandon(const Error& error) noexcept { fail(error); }

  // A time travels to a peer beside the data of a collective (link.h).
  virtual void post_time(int to, Time time) = 0;
  virtual Time take_time(int from) = 0;

  // Point to point, beside the collectives. Copies the data; does not wait for the receiver.
  virtual void send_message(int to, const CallHeader& call, Bytes data) = 0;
  // Waits for the next message of a rank. Throws Error{Comm}, and fails the group, when it differs
  // from the call in size or dtype (describe_difference).
  virtual void receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                               double timeout_seconds) = 0;

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

 protected:
  // Spins, then sleeps on `changes` until done() is true, which the awaited peer will make it.
  // Fails the group when the peer has left, or the time is over.
  template <typename Done>
  void wait_for(const RankWait& wait, const std::atomic<bool>& has_left,
                const runtime::WaitWord& changes, unsigned num_spins, const Done& done) {
    if (runtime::spin_until(done, num_spins)) return;
    const runtime::Deadline deadline = runtime::deadline_after(wait.timeout_seconds);
    for (;;) {
      // Read first, so that what the peer did before it left counts.
      const std::uint32_t seen = changes.load();
      const bool is_gone = has_left.load();
      if (done()) return;
      throw_if_failed();
      if (is_gone) fail_and_throw(wait.left());
      if (runtime::has_passed(deadline)) {
        fail_and_throw(wait.late(describe_missing(wait.call.sequence)));
      }
      changes.sleep_while_equal(seen, deadline);
    }
  }

 private:
  GroupShape shape_;
};

inline void Group::run_in_shared_memory(const CollectiveCall& call, std::span<void* const>) {
  lockstep::fail(ErrorCode::State, name_of(call.header.operation), "the {} ranks share no memory",
                 shape_.name);
}

}  // namespace lockstep::comm
