// Ranks of one host that read and write each other's memory, be they threads or processes
// (peer_memory.h). A collective is: announce the call, wait until all have done so, compare. Then
//   by a plan (run_schedule): publish where the buffer is, and meet; in each step read the chunks
//   that this rank receives where they lie, reduce them into place, and meet
//   two-shot, the default (run_directly): the call told where the buffer is. Add up this rank's
//   chunk of all buffers, write the sum into all of them, and meet
//   two-shot, small (run_directly): the call told the values. Each rank adds them up by itself
//
// A buffer that peers cannot reach (a process has memory of before it joined, or its caller's own)
// is copied into memory that they reach, and the result is copied back.
//
// Messages are a list in their sender's memory: the receiver reads them there.
//
// Every flag has one writer. A rank that waits spins for a bounded time, then sleeps on the word
// that its peer changes, and now and then looks if the peer's process still lives.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "engine/comm/announcements.h"
#include "engine/comm/peer_memory.h"
#include "engine/comm/transport.h"
#include "engine/runtime/memory_pool.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {

// How often a rank has come to a place where ranks meet, in all calls: when its buffer is
// published, and in every step of a plan when it has read all that it receives, and when it has
// written it.
using Progress = std::uint64_t;

// --- what the ranks share: a Failure, a Member for each rank, a Channel for each use, sender and
// receiver. All zeros is the right initial state.

// The first error that broke the group.
struct alignas(kCacheLine) SharedFailure {
  enum State : std::uint32_t { none, being_written, written };
  std::atomic<std::uint32_t> state{none};
  std::uint32_t num_bytes = 0;
  char error[1 << 11] = {};  // encoded, cut off if need be
};

// The largest all-reduce whose values are announced. Each rank then reads all values of all ranks,
// not only its own part, and saves the meeting. Between two ranks a meeting is cheap, so that pays
// for fewer values.
inline constexpr std::size_t kMostAnnouncedBytes = 1024;
inline constexpr std::size_t kMostAnnouncedByTwo = 256;

// A rank's state, for all others.
struct Member {
  Announcements announced;
  // The values of a small all-reduce. Calls use the two places in turn, as with `announced`.
  alignas(kCacheLine) std::byte values[2][kMostAnnouncedBytes];
  alignas(kCacheLine) std::atomic<Progress> progress{0};
  std::atomic<Address> buffer{0};  // that the current plan works on
  Flag<std::uint32_t> in_data;     // 1 while it may use others' memory
  Flag<std::uint32_t> has_left;
  // When it last looked if it must go on waiting, in nanoseconds of runtime::Clock, which is the
  // same for all processes of a host.
  Flag<std::int64_t> looked_at;
  alignas(kCacheLine) runtime::WaitWord num_changes;  // counts what it has written for others
};

// Messages from one rank to another.
struct Channel {
  Flag<std::uint64_t> num_sent;
  Address first = 0;
  Flag<std::uint64_t> num_taken;  // by the receiver, which has let go of them
};

// A message in its sender's memory; its data follow.
struct alignas(kCacheLine) MessageNode {
  Address next = 0;
  std::uint64_t num_bytes = 0;
  CallHeader call;
};

// The bytes of all this.
std::size_t bytes_to_share(std::size_t num_ranks);

// One rank's side, for tensors on the CPU.
class MemoryRank : public Transport {
 public:
  // shared: bytes_to_share() bytes.
  // spin: how it looks for a peer's part before it sleeps.
  // timeout_seconds: of waits before the first call gives its own.
  MemoryRank(GroupShape shape, SharedState shared, runtime::Spin spin, double timeout_seconds);
  // Waits until other processes have read its messages, for the time limit at most.
  ~MemoryRank() override;

  void announce(const CollectiveCall& call) override;
  CallHeader announced_by(int peer) override;
  void begin_data() override;
  void run_schedule(const plan::RankSchedule& schedule, TensorView buffer,
                    const Reduction& reduction) override;
  void run_directly(const CollectiveCall& call, std::span<void* const> memory) override;
  void end_data() noexcept override;
  void abandon(const Error& error) noexcept override;

  void post(Use use, int to, const CallHeader& call, Bytes data) override;
  Message take(Use use, int from) override;
  void release(Use use, int from) override;

  void fail(const Error& error) noexcept override;
  void throw_if_failed() const override;
  const Announcements* announced(int rank) const override { return &member(rank).announced; }

 protected:
  // Waits until all ranks have come as far as this one.
  void meet();

 private:
  enum class Waited { done, failed, left, died, timed_out };

  using Block = runtime::MemoryPool::Block;
  // The messages to one rank, and those from it.
  struct Sent {
    std::deque<Block> messages;  // the last one that was read, and all after it
    std::uint64_t num_sent = 0;
  };
  struct Received {
    Address last = 0;
    std::uint64_t num_taken = 0;
  };
  SharedFailure& failure() const;
  Member& member(int rank) const;
  Member& mine() const { return member(rank()); }
  std::size_t index(Use use, int peer) const;
  Channel& channel(Use use, int from, int to) const;

  // Returns when the peer has made done() true; else fails the group.
  template <typename Done>
  void wait_for(int peer, const Done& done);
  template <typename Done>
  Waited sleep_until(int peer, const runtime::Deadline& deadline, const Done& done) const;
  Waited look_at(int peer, const runtime::Deadline& deadline) const;
  [[noreturn]] void fail_waiting(int peer, Waited waited);
  int find_stopped(int peer) const;

  void run_step(const plan::RankSchedule::Step& step, TensorView buffer,
                const Reduction& reduction);
  // True for an all-reduce whose values are announced with it.
  bool is_small(const CallHeader& call) const;
  // Computes its result from all ranks' values.
  void combine_announced(const CollectiveCall& call) const;
  // Tells an observer what the step brought.
  void tell_arrivals(std::size_t number, const plan::RankSchedule::Step& step,
                     TensorView buffer) const;
  // Returns the address at which peers reach a buffer, or a copy of it.
  Address share(const void* data, std::size_t num_bytes);

  // Takes back the messages that the peer has let go of, but for so many of the last ones.
  void reclaim(Use use, int to, std::size_t num_kept);
  bool has_read_all(int peer) const;

  std::unique_ptr<PeerMemory> memory_;
  std::shared_ptr<std::byte> shared_;
  runtime::Spin spin_;
  Progress progress_ = 0;
  std::vector<Sent> sent_;          // by use and peer
  std::vector<Received> received_;  // by use and peer
  Block copy_;                      // of a buffer that peers cannot reach
  bool is_copied_ = false;          // the current call's buffer
};

// How ranks of one host spin, of which so many share cores. Modelled links delay messages, and
// leave the cores to computation meanwhile.
enum class LinkKind { real, modelled };
runtime::Spin spin_of_ranks(std::size_t num_ranks, LinkKind links);

// All ranks' sides of a group of threads, for tensors on the CPU and on CUDA devices
// (device_rank.cpp).
std::vector<std::unique_ptr<Group>> make_thread_ranks(int world_size, runtime::Spin spin);

}  // namespace lockstep::comm
