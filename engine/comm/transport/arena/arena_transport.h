// What the transports of one host have in common: ranks that announce their calls, hand over
// messages and fail in an arena. How a message gets there is left to them: threads lend their
// memory (thread/thread_transport.h), processes copy (shm/shm_transport.h).
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/absent_rank.h"
#include "engine/comm/transport/arena/group.h"
#include "engine/comm/transport/transport.h"

namespace lockstep::comm {

class ArenaTransport : public Transport {
 public:
  int rank() const override { return group_.me(); }
  int world_size() const override { return group_.size(); }

  void announce(const CallHeader& call, double timeout_seconds) override;
  CallHeader announced_by(int peer) override;

  const std::byte* take(int from, std::size_t num_bytes) override;
  void release(int from) override;

  void fail(const Error& error) override { group_.fail(error); }
  void throw_if_failed() const override { group_.throw_if_failed(); }
  std::string describe_missing(std::uint64_t sequence) const override {
    return group_.describe_missing(sequence);
  }

 protected:
  // ranks[i]: what member i of the group is called in messages. index: of this rank among them.
  // Throws RankTaken, see arena::Group.
  ArenaTransport(std::shared_ptr<arena::Arena> arena, arena::Messages messages, int index,
                 std::vector<int> ranks, double timeout_seconds);

  // The number of the next message to a rank, when there is room for it.
  Ticket next_ticket(int to);
  // Posts that message. It lies where the receiver finds it: in the arena, or in an address space
  // that all ranks share.
  void hand_over(int to, Ticket number, Bytes data);
  // Returns when the receiver has released a message.
  void wait_released(int to, Ticket number);

  // The call that this rank is in from now on: what its errors are about.
  void enter(const CallHeader& call, double timeout_seconds);
  double timeout_seconds() const { return timeout_seconds_; }
  const CallHeader& call() const { return call_; }

  // Returns when done() is true, which the peer will make it; else fails the group.
  template <typename Done>
  void wait_for(int peer, const Done& done) {
    if (group_.spin_until(done)) return;
    const runtime::Deadline deadline = runtime::deadline_after(timeout_seconds_);
    const arena::Waited waited = group_.sleep_until(peer, deadline, done);
    if (waited != arena::Waited::done) fail_waiting(peer, waited);
  }
  [[noreturn]] void fail_waiting(int peer, arena::Waited waited);
  // For a message of send() that is not what recv() expects.
  [[noreturn]] void fail_on_letter(int from, const CallHeader& sent);

  arena::Group group_;

 private:
  RankWait wait_of(int peer) const {
    return {group_.name_of(rank()), group_.name_of(peer), call_, timeout_seconds_};
  }
  Error late(int peer) const;

  CallHeader call_;  // the current one
  double timeout_seconds_;
  std::vector<Ticket> num_posted_;    // to each rank
  std::vector<Ticket> num_released_;  // of each rank's messages
};

}  // namespace lockstep::comm
