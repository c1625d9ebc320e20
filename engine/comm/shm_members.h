// The ranks of one host in the memory that their processes share: who is alive, who has called
// what, who waits for whom, what broke the group, and the slots that messages travel in.
//
//   Failure            the group's failure
//   Member[n]          what each rank tells all others
//   Channel[2][n][n]   messages of collectives, and those of send(), by sender and receiver
//   slots              the memory of the messages, kNumSlots for each channel
// All zeros is the right initial state. Every flag has one writer. Untouched pages cost
// nothing, so the largest group shares this layout too.
#pragma once

#include <sched.h>

#include <array>
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "engine/comm/announcements.h"
#include "engine/comm/shm_segment.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {

// A futex that the processes of one host share. runtime::WaitWord is the same within one process.
class SharedFutex {
 public:
  // Wakes those who sleep here. Call it after writing what may be waited for: either the sleeper is
  // seen here, or the sleeper sees what was written, since both sides are sequentially consistent.
  void wake_sleepers() {
    if (num_sleeping_.load(std::memory_order_seq_cst) != 0) wake();
  }
  // Sleeps at most so long, perhaps shorter, unless is_over() is true after it announced that.
  template <typename IsOver>
  void sleep_unless(const IsOver& is_over, std::chrono::nanoseconds at_most) {
    num_sleeping_.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t seen = num_wakes_.load(std::memory_order_seq_cst);
    if (!is_over() && at_most.count() > 0) sleep(seen, at_most);
    num_sleeping_.fetch_sub(1, std::memory_order_seq_cst);
  }

 private:
  void wake();
  void sleep(std::uint32_t seen, std::chrono::nanoseconds at_most) const;

  std::atomic<std::uint32_t> num_wakes_{0};
  std::atomic<std::uint32_t> num_sleeping_{0};
};

class ShmMembers {
 public:
  static constexpr std::size_t kNumSlots = 8;

  struct Member {
    Announcements announced;
    Flag<std::uint32_t> has_attached;
    Flag<std::uint32_t> has_left;
    // 1 + the member that it sleeps for; 0: none; -1 - r: rank r on another host.
    Flag<std::int32_t> waits_for;
    // When a member that sleeps last looked whether it must, in nanoseconds of runtime::Clock,
    // which is the same for all processes of a host.
    Flag<std::int64_t> looked_at;
    std::int32_t process = 0;  // written before has_attached, like
    cpu_set_t cores;           // those that it may run on
    alignas(kCacheLine) SharedFutex futex;
  };

  // Messages from one rank to another. Message number k, counted from 1, is in slot
  // (k - 1) % kNumSlots until num_released reaches k.
  struct alignas(kCacheLine) Slot {
    std::atomic<std::uint64_t> number{0};  // of the message in it
    std::size_t num_bytes = 0;
  };
  struct Channel {
    std::array<Slot, kNumSlots> slots;
    Flag<std::uint64_t> num_released;

    Slot& slot(std::uint64_t number) { return slots[(number - 1) % kNumSlots]; }
  };
  enum class Use : std::size_t { collective, send_recv };

  // Bytes of the segment of so many ranks.
  static std::size_t segment_bytes(std::size_t num_ranks);

  // Takes part as member `me`. ranks[i]: what member i is called in messages.
  // Throws DuplicateRank when another process is this member.
  ShmMembers(ShmSegment segment, int me, std::vector<int> ranks);
  // Leaves the group.
  ~ShmMembers();
  ShmMembers(const ShmMembers&) = delete;
  ShmMembers& operator=(const ShmMembers&) = delete;

  // Returns when all members take part. throw_if_hopeless() is called now and then.
  // Throws Error{Timeout} that names those that do not.
  void meet(double timeout_seconds, const std::function<void()>& throw_if_hopeless);

  int me() const { return me_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int rank_of(int m) const { return ranks_[static_cast<std::size_t>(m)]; }

  Member& member(int m) const;
  Channel& channel(Use use, int from, int to) const;
  std::byte* slot_memory(Use use, int from, int to, std::uint64_t number) const;
  std::size_t slot_bytes() const { return slot_bytes_; }

  // Call it after writing a flag that the member may wait for.
  void wake(int m) const { member(m).futex.wake_sleepers(); }
  void wake_all() const;

  void fail(const Error& error) const;
  void throw_if_failed() const {
    if (has_failed()) throw_failure();
  }
  // See Transport::describe_missing.
  std::string describe_missing(std::uint64_t sequence) const;

  // Waits until done() is true, which something that member m writes will make it. Any thread of
  // this process.
  enum class Waited { done, failed, left, died, timed_out };
  template <typename Done>
  Waited wait(int m, const runtime::Deadline& deadline, const Done& done) const {
    return spin_until(done) ? Waited::done : sleep_until(m, deadline, done);
  }
  // Its two halves.
  template <typename Done>
  bool spin_until(const Done& done) const {
    return runtime::spin_until(done, num_spins_);
  }
  template <typename Done>
  Waited sleep_until(int m, const runtime::Deadline& deadline, const Done& done) const;

  // The rank that keeps all others waiting: follows from member m who waits for whom, up to a rank
  // that has not looked for long, since what it waited for may have come while it was stopped.
  struct Last {
    int rank = 0;  // its number in the whole group
    bool is_here = true;
  };
  Last last_waited_for(int m) const;
  // This rank now waits for one on another host (by its number in the whole group); -1: no longer.
  void note_wait_elsewhere(int rank) const {
    member(me_).waits_for.value.store(-1 - rank, std::memory_order_relaxed);
  }

 private:
  struct Failure;

  Failure& failure() const;
  bool has_failed() const;
  [[noreturn]] void throw_failure() const;
  bool all_have_attached() const;
  std::size_t channel_index(Use use, int from, int to) const;
  unsigned spins_worth_their_time() const;

  void note_look() const;
  bool has_stopped_looking(int m) const;
  // The state of the member that this one waits for; done: nothing new, wait on.
  Waited look_at(int m, const runtime::Deadline& deadline) const;
  void wait_until_over(int m) const;

  // A death does not wake sleepers, so they look now and then whether their peer is alive.
  static constexpr std::chrono::milliseconds kLongestSleep{64};

  ShmSegment segment_;
  int me_;
  std::vector<int> ranks_;
  std::size_t slot_bytes_;
  std::byte* channels_;
  std::byte* slots_;
  unsigned num_spins_ = 0;  // set when all have met
};

template <typename Done>
ShmMembers::Waited ShmMembers::sleep_until(int m, const runtime::Deadline& deadline,
                                           const Done& done) const {
  std::chrono::nanoseconds at_most = std::chrono::milliseconds(4);
  note_look();
  member(me_).waits_for.value.store(m + 1, std::memory_order_release);
  Waited waited = Waited::done;
  while (waited == Waited::done && !done()) {
    member(me_).futex.sleep_unless([&] { return done() || look_at(m, deadline) != Waited::done; },
                                   runtime::time_until(deadline, at_most));
    note_look();
    at_most = std::min<std::chrono::nanoseconds>(2 * at_most, kLongestSleep);
    if (done()) break;
    waited = look_at(m, deadline);
    // Its last writes before it went still count.
    if (waited != Waited::done && done()) waited = Waited::done;
  }
  if (waited == Waited::died) wait_until_over(m);
  // A rank that waited in vain goes on saying for whom: others may be about to ask.
  if (waited == Waited::done) member(me_).waits_for.value.store(0, std::memory_order_relaxed);
  return waited;
}

}  // namespace lockstep::comm
