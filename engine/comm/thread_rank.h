// Ranks that are threads read and write each other's memory. A collective is:
//   announce the call; wait until all have done so, and compare
//   publish the pointer to the buffer, and meet
//   for each step of the plan: for each chunk that this rank receives, read it where it lies and
//   reduce it into place; meet
// An all-reduce by the two-shot plan is one pass over the memory of all ranks.
//
// Every flag has one writer. A rank that waits spins for a bounded time, then sleeps on the word
// that its peer changes.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "engine/comm/announcements.h"
#include "engine/comm/group.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {

// How often a rank has come to a place where ranks meet, in all calls: when its buffer is
// published, and in every step of a plan when it has read all that it receives, and when it has
// written it.
using Progress = std::uint64_t;

// A message from send() to recv().
struct SentTensor {
  CallHeader call;
  Tensor data;                              // a copy
  std::shared_ptr<runtime::Event> written;  // on CUDA: passes when the data is there
};

// From one rank to another, beside the data of collectives.
struct Channel {
  Queue<SentTensor> messages;
  Queue<std::int64_t> notes;
};

// State that a rank shows to all others.
struct ThreadState {
  Announcements announced;
  alignas(kCacheLine) std::atomic<Progress> progress{0};
  std::atomic<std::byte*> buffer{nullptr};  // that the current plan works on
  Flag<std::uint32_t> in_data;              // 1 while it may use others' memory
  std::atomic<bool> has_left{false};
  alignas(kCacheLine) runtime::WaitWord num_changes;  // changes after any of these
};

struct ThreadGroupState {
  explicit ThreadGroupState(int world_size)
      : ranks(static_cast<std::size_t>(world_size)), channels(ranks.size() * ranks.size()) {}

  Channel& channel(int from, int to) {
    return channels[static_cast<std::size_t>(from) * ranks.size() + static_cast<std::size_t>(to)];
  }

  std::vector<ThreadState> ranks;
  std::vector<Channel> channels;
  FirstFailure failure;
};

// One rank's side, for tensors on the CPU.
class ThreadRank : public Group {
 public:
  // num_spins: how often it looks for a peer's part before it sleeps.
  ThreadRank(std::shared_ptr<ThreadGroupState> state, GroupShape shape, unsigned num_spins)
      : Group(std::move(shape)), state_(std::move(state)), num_spins_(num_spins) {}
  ~ThreadRank() override;

  void announce(const CallHeader& call, double timeout_seconds) override;
  CallHeader announced_by(int peer) override;
  void begin_data() override;
  void run_schedule(const plan::RankSchedule& schedule, TensorView buffer,
                    const Reduction& reduction) override;
  void run_directly(const CollectiveCall& call, std::span<void* const> memory) override;
  void end_data() noexcept override;
  void abandon(const Error& error) noexcept override;

  void post_note(int to, std::int64_t note) override { put(to, &Channel::notes, note); }
  std::int64_t take_note(int from) override;
  void send_message(int to, const CallHeader& call, Bytes data) override;
  void receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                       double timeout_seconds) override;

  void fail(const Error& error) noexcept override;
  void throw_if_failed() const override { state_->failure.throw_if_set(); }
  const Announcements* announced(int rank) const override { return &of(rank).announced; }

 protected:
  // Waits until all ranks have come as far as this one.
  void meet();

  // Adds to a queue for a peer.
  template <typename T>
  void put(int to, Queue<T> Channel::*queue, T item) {
    (state_->channel(rank(), to).*queue).put(std::move(item));
    mine().num_changes.add(1);
  }
  // Waits for the next message from a rank, which must match the call.
  SentTensor take_message(int from, const CallHeader& call, double timeout_seconds);

 private:
  ThreadState& of(int rank) const { return state_->ranks[static_cast<std::size_t>(rank)]; }
  ThreadState& mine() const { return of(rank()); }

  // Returns when done() is true, which the peer will make it; else fails the group.
  template <typename Done>
  void wait_for(int peer, const Done& done);
  template <typename T>
  T take(int from, Queue<T> Channel::*queue);
  void run_step(const plan::RankSchedule::Step& step, TensorView buffer,
                const Reduction& reduction);
  // Tells an observer what the step brought.
  void tell_arrivals(std::size_t number, const plan::RankSchedule::Step& step,
                     TensorView buffer) const;

  std::shared_ptr<ThreadGroupState> state_;
  unsigned num_spins_;
  Progress progress_ = 0;
};

// All ranks' sides of a group, for tensors on the CPU and on CUDA devices (device_rank.cpp).
std::vector<std::unique_ptr<Group>> make_thread_ranks(int world_size, unsigned num_spins);

}  // namespace lockstep::comm
