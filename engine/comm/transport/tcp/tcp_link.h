// What a TcpTransport is made of: the peers, the waiting, and the thread that looks after them when
// nobody waits.
//
// mutex() guards everything but GroupState. Whoever waits holds it all the time and moves all
// bytes itself: first it asks the awaited socket again and again for a short while, then it sleeps
// until any socket has news. It always takes what any peer sends, so that ranks that wait for
// each other cannot block each other by full sockets.
// The thread takes over when nobody has waited for kTick; while somebody does, it looks up once
// per tick, and when nothing happens at all it sleeps.
#pragma once

#include <condition_variable>
#include <memory>
#include <thread>

#include "engine/comm/transport/tcp/peer.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {

class TcpLink {
 public:
  // connections: by rank; those that are not open are no peers. is_crowded: ranks outnumber cores.
  TcpLink(int rank, std::vector<Socket> connections, bool is_crowded);
  // Says goodbye to all and delivers what is on its way, for a bounded time.
  ~TcpLink();

  GroupState& group() { return group_; }
  const GroupState& group() const { return group_; }
  std::mutex& mutex() { return mutex_; }

  // The functions from here on are called with mutex() held.
  Peer& peer(int rank);
  const std::vector<std::unique_ptr<Peer>>& peers() const { return peers_; }

  // Returns when done() is true. Throws the group's failure as soon as there is one; why_left() and
  // why_late() make the error when the peer has left, and when time is over.
  template <typename Done, typename WhyLeft, typename WhyLate>
  void wait_for(int rank, double timeout_seconds, const Done& done, const WhyLeft& why_left,
                const WhyLate& why_late);
  // Fails the group, tells all peers, and throws its failure.
  [[noreturn]] void fail_and_throw(const Error& error);
  // Tells all peers of the group's failure, once, and lets go of all borrowed memory.
  void spread_failure();
  // Sees to it that what is still to be sent will be, even if nobody waits from here on.
  void leave_rest_to_thread();

  // Without mutex(): wakes whoever waits, because the group has failed.
  void wake();

 private:
  // One attempt to move bytes: of this peer, and those that have something to send.
  bool move_some(Peer& peer);
  // Sleeps until a socket has news or the deadline; moves what there is. False: nothing came.
  bool sleep_and_move(runtime::Deadline deadline);
  bool handle_events(int timeout_milliseconds);
  void watch(Peer& peer);

  void look_after();
  void pause_for_tick();
  void deliver_rest();

  GroupState group_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<Peer*> by_rank_;
  std::vector<std::uint32_t> watched_;  // by rank: the events that epoll reports
  std::chrono::microseconds spin_time_;
  Socket epoll_, wake_;
  std::mutex mutex_;
  bool has_spread_failure_ = false;
  std::atomic<std::uint64_t> num_waits_{0};

  std::mutex thread_mutex_;
  std::condition_variable thread_wakes_;
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

template <typename Done, typename WhyLeft, typename WhyLate>
void TcpLink::wait_for(int rank, double timeout_seconds, const Done& done, const WhyLeft& why_left,
                       const WhyLate& why_late) {
  if (done()) return;
  num_waits_.fetch_add(1, std::memory_order_relaxed);
  Peer& awaited = peer(rank);
  const auto start = runtime::Clock::now();
  const auto spin_time = runtime::may_spin() ? spin_time_ : std::chrono::microseconds(0);
  runtime::Deadline deadline;
  bool spins = true;
  bool is_late = false;
  while (true) {
    const bool has_moved = spins ? move_some(awaited) : sleep_and_move(deadline);
    if (group_.failure().is_set()) {
      spread_failure();
      group_.failure().throw_if_set();
    }
    if (done()) return;
    if (awaited.has_left()) fail_and_throw(why_left());
    if (is_late) fail_and_throw(why_late());
    if (spins && !has_moved && runtime::Clock::now() - start > spin_time) {
      spins = false;
      deadline = runtime::deadline_after(timeout_seconds);
    }
    is_late = !spins && runtime::has_passed(deadline);
  }
}

}  // namespace lockstep::comm
