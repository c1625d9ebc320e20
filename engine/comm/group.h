// Group: one rank's side of a group. It is the interface between the communicator
// (plan_communicator.cpp) and the way in which the ranks reach each other. Ranks of one host read
// each other's memory (memory_group.h); others exchange messages (transport.h). If ranks are on
// several hosts, those of one host exchange messages, too, by their memory (shm_and_tcp.cpp). Any
// group may stand behind modelled links (link.h).
//
// A collective uses it in this order:
//   announce(call)                  tell all ranks this rank's call
//   announced_by(peer) for all      compare; on a difference, fail_and_throw()
//   begin_data(); run_schedule(...) or run_directly(...); end_data()    move the data
// If an error ends this sequence, or a message, anywhere, abandon() takes the place of the rest.
//
// All waits end with Error{Timeout} after the time limit of the last announce() or
// receive_message(), and with the group's failure as soon as there is one. A failure is permanent.
// Threads: one thread at a time, except for fail() and throw_if_failed().
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/comm/announcements.h"
#include "engine/comm/collective_call.h"
#include "engine/comm/comm_errors.h"
#include "engine/comm/reduce.h"
#include "engine/core/error.h"
#include "engine/runtime/threads.h"
#include "engine/trace/observer.h"

namespace lockstep::comm {

// Properties of a rank's group that never change.
struct GroupShape {
  int rank = 0;
  int world_size = 1;
  std::string name;  // "thread", "shm", "tcp"
  // The largest message; larger chunks travel in pieces of this size.
  std::size_t max_message_bytes = std::numeric_limits<std::size_t>::max();
  std::vector<int> hosts;      // a number for the host of each rank; empty: all are equally close
  std::vector<int> names;      // the ranks' names in messages; empty: 0, 1, ...
  bool shares_memory = false;  // ranks read and write each other's tensors on the CPU
  bool takes_cuda = false;     // run_directly() takes tensors on CUDA devices
  // How the thread of asynchronous calls shares the cores.
  runtime::Worker::Slices slices = runtime::Worker::Slices::ordinary;
};

// True for an all-reduce that the ranks run in one pass over each other's memory, and not by its
// plan; an observer of arrivals sees the plan's steps, which give the same bits.
bool takes_one_pass(const GroupShape& shape, const CallHeader& call);

class Group {
 public:
  explicit Group(GroupShape shape) : shape_(std::move(shape)) {}
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const GroupShape& shape() const { return shape_; }
  int rank() const { return shape_.rank; }
  int world_size() const { return shape_.world_size; }

  // A call was made; runs in the thread that made it, before anything else of the call.
  virtual void note_call(const CallHeader&) {}
  // If takes_cuda: puts a call on tensors of a CUDA device on one of its streams, in order with the
  // device's other work. Runs in the thread that made it.
  virtual void put_on_stream(CollectiveCall&, Launch) {}
  // Tells all ranks, without waiting for them. Throws the group's failure if there is one.
  virtual void announce(const CollectiveCall& call) = 0;
  // Waits for the peer's call with the sequence number of the last announce(), and returns it.
  virtual CallHeader announced_by(int peer) = 0;
  // The data of a call, which all ranks have called alike, moves between these two.
  virtual void begin_data() {}
  virtual void end_data() {}
  // Carries out all steps of a plan.
  virtual void run_schedule(const plan::RankSchedule& schedule, TensorView buffer,
                            const Reduction& reduction) = 0;
  // If shape().shares_memory: a two-shot all-reduce in one pass. If it takes_cuda: any call on CUDA
  // tensors. memory[r]: CallHeader::memory, as rank r announced it.
  virtual void run_directly(const CollectiveCall& call, std::span<void* const> memory);
  // After an error: fails the group unless it has failed already, and returns when no peer uses
  // this rank's memory any more.
  virtual void abandon(const Error& error) noexcept { fail(error); }

  // A number for a peer, which travels beside the data of a collective and in its order.
  virtual void post_note(int to, std::int64_t note) = 0;
  virtual std::int64_t take_note(int from) = 0;
  // Has run_schedule() call this before each step in which the rank sends or receives.
  using BeforeStep = std::function<void(const plan::RankSchedule::Step&)>;
  void set_before_step(BeforeStep before_step) { before_step_ = std::move(before_step); }

  // A message outside the collectives. Copies the data; does not wait for the receiver.
  virtual void send_message(int to, const CallHeader& call, Bytes data) = 0;
  // Waits for the next message from a rank. If it differs from the call in size or dtype, fails the
  // group and throws Error{Comm} (describe_difference).
  virtual void receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                               double timeout_seconds) = 0;

  // Breaks the group: every pending and later call of every rank throws this error. Only the first
  // failure counts.
  virtual void fail(const Error& error) noexcept = 0;
  virtual void throw_if_failed() const = 0;
  // The calls that a rank has announced; nullptr for this group's ranks on other transports.
  virtual const Announcements* announced(int rank) const = 0;
  // The ranks that have not announced a call with this sequence number, with each one's last call:
  // "rank 2 is missing (its last call: barrier #6)". Empty if none is missing.
  std::string describe_missing(std::uint64_t sequence) const {
    std::string text;
    for (int peer = 0; peer < world_size(); ++peer) {
      const Announcements* theirs = announced(peer);
      if (theirs == nullptr || theirs->has_reached(sequence)) continue;
      add_to_list(text, missing_rank(name_of_rank(peer), theirs->last()));
    }
    return text;
  }

  // Breaks the group, and throws the error that broke it: this one or an earlier one.
  [[noreturn]] void fail_and_throw(const Error& error) {
    fail(error);
    throw_if_failed();
    std::abort();  // not reached: a group that failed throws
  }

 protected:
  // The call that this rank is in, since announce() or receive_message().
  void enter(const CallHeader& call, double timeout_seconds) {
    throw_if_failed();
    call_ = call;
    timeout_seconds_ = timeout_seconds;
  }

  void begin_step(const plan::RankSchedule::Step& step) const {
    if (before_step_ && !(step.sends.empty() && step.receives.empty())) before_step_(step);
  }

  int name_of_rank(int rank) const {
    return shape_.names.empty() ? rank : shape_.names[static_cast<std::size_t>(rank)];
  }
  RankWait waiting_for(int peer) const {
    return {name_of_rank(rank()), name_of_rank(peer), call_, timeout_seconds_};
  }

  // The call of send() that comes with a message must match the current recv(), and its bytes the
  // place that is waiting for them.
  void require_same_message(int from, const CallHeader& sent, std::size_t sent_bytes,
                            std::size_t place_bytes) {
    if (sent_bytes == place_bytes && sent.dtype == call_.dtype && sent.device == call_.device)
      return;
    fail_and_throw(
        Error(ErrorCode::Comm, name_of(call_.operation),
              describe_difference(name_of_rank(rank()), call_, name_of_rank(from), sent)));
  }

  CallHeader call_;  // the current one
  double timeout_seconds_ = 0;

 private:
  GroupShape shape_;
  BeforeStep before_step_;
};

inline bool takes_one_pass(const GroupShape& shape, const CallHeader& call) {
  return shape.shares_memory && shape.world_size > 1 && call.device == DeviceType::cpu &&
         call.operation == Operation::all_reduce && call.plan == plan::AllReducePlan::two_shot &&
         trace::observer_of_arrivals() == nullptr;
}

inline void Group::run_directly(const CollectiveCall& call, std::span<void* const>) {
  lockstep::fail(ErrorCode::State, name_of(call.header.operation), "the {} ranks share no memory",
                 shape_.name);
}

// The project's own communicator: runs collectives by their plans, among the ranks of a group.
// Destroying it finishes asynchronous calls, then leaves the group.
std::unique_ptr<Communicator> make_plan_communicator(std::unique_ptr<Group> group);

}  // namespace lockstep::comm
