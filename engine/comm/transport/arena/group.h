// One rank's view of a group that meets in an arena: who lives, who waits for whom, what failed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/comm/transport/arena/arena.h"
#include "engine/comm/transport/arena/layout.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm::arena {

// How a wait ended.
enum class Waited { done, failed, left, died, timed_out };

class Group {
 public:
  // ranks[i]: what member i is called in messages. Takes part as member `me`.
  // Throws RankTaken when another process is this member already.
  Group(std::shared_ptr<Arena> arena, Messages messages, int me, std::vector<int> ranks);
  // Leaves the group.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // Returns when all members take part. throw_if_hopeless() is called now and then.
  // Throws Error{Timeout} that names those that do not.
  void meet(double timeout_seconds, const std::function<void()>& throw_if_hopeless);

  int me() const { return me_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int name_of(int member) const { return ranks_[static_cast<std::size_t>(member)]; }
  const Layout& layout() const { return layout_; }

  Member& member(int m) const { return layout_.member(memory_, m); }
  Channel& channel(Layout::Use use, int from, int to) const {
    return layout_.channel(memory_, use, from, to);
  }
  std::byte* slot(Layout::Use use, int from, int to, Ticket number) const {
    return layout_.slot(memory_, use, from, to, number);
  }

  // Bytes by their distance from where the arena begins, which is the same for all members.
  std::uintptr_t place_of(const std::byte* data) const {
    return reinterpret_cast<std::uintptr_t>(data) - reinterpret_cast<std::uintptr_t>(memory_);
  }
  const std::byte* at(std::uintptr_t place) const {
    return reinterpret_cast<const std::byte*>(reinterpret_cast<std::uintptr_t>(memory_) + place);
  }

  // Call it after a flag that the member may wait for was written.
  void ring(int m) const { member(m).doorbell.ring(); }
  void ring_all() const;

  void fail(const Error& error) const;
  bool has_failed() const { return failure().state.load(std::memory_order_seq_cst) != 0; }
  void throw_if_failed() const {
    if (has_failed()) throw_failure();
  }

  // Waits until done() is true, which something that `member` writes will make it: spins for a
  // bounded time, then sleeps. Any thread of this process.
  template <typename Done>
  Waited wait(int m, const runtime::Deadline& deadline, const Done& done) const {
    return spin_until(done) ? Waited::done : sleep_until(m, deadline, done);
  }
  // The two halves of it.
  template <typename Done>
  bool spin_until(const Done& done) const {
    return runtime::spin_until(done, num_spins_);
  }
  template <typename Done>
  Waited sleep_until(int m, const runtime::Deadline& deadline, const Done& done) const;
  // Of members that need not meet.
  void set_num_spins(unsigned num_spins) { num_spins_ = num_spins; }

  // Who keeps everybody waiting: follows from `m` who waits for whom, up to a rank that has not
  // looked for long, since what it waited for may have come while it was stopped.
  struct Last {
    int rank = 0;  // its number in the whole group
    enum class Where { here, elsewhere } where = Where::here;
  };
  Last last_waited_for(int m) const;
  // See ShmTransport::note_wait_elsewhere.
  void note_wait_elsewhere(int other) const {
    member(me_).waits_for.value.store(-1 - other, std::memory_order_relaxed);
  }
  // See Transport::describe_missing.
  std::string describe_missing(std::uint64_t sequence) const;

 private:
  Failure& failure() const { return layout_.failure(memory_); }
  [[noreturn]] void throw_failure() const;
  bool all_have_attached() const;
  void require_all_attached(double timeout_seconds) const;
  unsigned spins_worth_their_time() const;

  // Sleeps a while on this member's doorbell unless is_over() is true after it announced that.
  template <typename IsOver>
  void doze(const IsOver& is_over, const runtime::Deadline& deadline,
            std::chrono::nanoseconds at_most) const;
  // A death rings no bell: a sleeper wakes now and then to see whether its peer is alive.
  static constexpr std::chrono::milliseconds kLongestSleep{64};
  void note_look() const;
  bool has_stopped_looking(int m) const;
  // What has become of the member that this one waits for; done: nothing, wait on.
  Waited look_at(int m, const runtime::Deadline& deadline) const;
  // The kernel lets go of a process's locks a moment before it tells anybody that the process has
  // ended. Whoever has found a peer dead waits for that, so that the launcher, which reports the
  // rank that ended first, cannot see this rank's own end sooner. Bounded.
  void wait_until_over(int m) const;

  std::shared_ptr<Arena> arena_;
  Layout layout_;
  std::byte* memory_;
  int me_;
  std::vector<int> ranks_;
  unsigned num_spins_ = 0;  // set when all have met
};

template <typename IsOver>
void Group::doze(const IsOver& is_over, const runtime::Deadline& deadline,
                 std::chrono::nanoseconds at_most) const {
  Doorbell& doorbell = member(me_).doorbell;
  doorbell.begin_sleep();
  const std::uint32_t seen = doorbell.load();
  if (!is_over()) {
    at_most = runtime::time_until(deadline, at_most);
    if (at_most.count() > 0) doorbell.sleep(seen, at_most);
  }
  doorbell.end_sleep();
}

template <typename Done>
Waited Group::sleep_until(int m, const runtime::Deadline& deadline, const Done& done) const {
  constexpr auto kFirstLook = std::chrono::milliseconds(4);
  std::chrono::nanoseconds at_most = kFirstLook;
  note_look();
  member(me_).waits_for.value.store(m + 1, std::memory_order_release);
  Waited waited = Waited::done;
  while (waited == Waited::done && !done()) {
    doze([&] { return done() || look_at(m, deadline) != Waited::done; }, deadline, at_most);
    note_look();
    at_most = std::min<std::chrono::nanoseconds>(2 * at_most, kLongestSleep);
    if (done()) break;
    waited = look_at(m, deadline);
    // What the peer wrote before it went still counts.
    if (waited != Waited::done && done()) waited = Waited::done;
  }
  if (waited == Waited::died) wait_until_over(m);
  // Who waited in vain goes on saying for whom: others may be about to ask (last_waited_for).
  if (waited == Waited::done) member(me_).waits_for.value.store(0, std::memory_order_relaxed);
  return waited;
}

}  // namespace lockstep::comm::arena
