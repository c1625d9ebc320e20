// The transport between processes over TCP sockets: on one host, or on several.
//
// Every pair of ranks shares one connection, made when the transport is constructed: every rank
// listens on a free port and publishes it in the store; of two ranks the higher one connects and
// says hello (mesh.cpp). Strangers are treated as the store's are (store/hello.h). The wire format
// is in frame.h.
//
// Sockets are never blocking. A thread that waits in post(), take(), announced_by() or
// receive_message() holds the mutex and moves all bytes itself: first it asks the awaited socket
// again and again for a short while, then it sleeps in poll() until any socket has news. It always
// takes what any peer sends, so that ranks that wait for each other cannot block each other by full
// sockets. When no caller has waited for kTick, a thread of the transport sends what is left over
// and watches for peers that fail; when nothing happens at all, it sleeps.
//
// Failing: a connection that ends without a goodbye fails the group with Error{Comm} that names the
// rank; a rank that finds a failure sends it to all others, so that all ranks report the same.
#pragma once

#include <poll.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/announcements.h"
#include "engine/comm/comm_errors.h"
#include "engine/comm/store/socket.h"
#include "engine/comm/store/store.h"
#include "engine/comm/transport.h"
#include "engine/comm/transport/tcp/frame.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {

struct TcpTransportOptions {
  int rank = 0;
  int world_size = 1;
  // The job's; ranks with another token are strangers.
  std::string token;
  // Tells groups of one job apart; part of the keys in the store.
  std::string group = "0";
  // Under which the other ranks reach this one, and on which it listens: an address of this host.
  std::string address = "127.0.0.1";
  // Ranks on this host; when they outnumber its cores they wait without spinning. 0: all of them.
  int num_local_ranks = 0;
  // Ranks to connect to, beside this one; empty: all. Both ends of a pair must agree on it.
  // Announcements and failures go to these ranks only.
  std::vector<int> peers;
  // For all connections to be made.
  double timeout_seconds = 30;
};

// The connections to the ranks `peers`, by rank; others are not open. Never blocking.
// Throws what TcpTransport's constructor does; the store is aborted then, so that all ranks hear of
// it, but not for DuplicateRank.
std::vector<Socket> connect_ranks(const TcpTransportOptions& options, const std::vector<int>& peers,
                                  Store& store);

class TcpTransport final : public Transport {
 public:
  // Meets the other ranks through the store and connects to them.
  // Throws Error{Timeout} naming the ranks that did not come. Error{Comm} when another rank aborted
  // the store; DuplicateRank, on this rank alone, when another process has its number.
  TcpTransport(const TcpTransportOptions& options, Store& store);
  ~TcpTransport() override;

  void announce(const CallHeader& call, double timeout_seconds) override;
  CallHeader announced_by(int peer) override;
  void post(int to, Bytes data) override;
  const std::byte* take(int from, std::size_t num_bytes) override;
  void release(int from) override;
  void send_message(int to, const CallHeader& call, Bytes data) override;
  void receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                       double timeout_seconds) override;
  void fail(const Error& error) noexcept override;
  void throw_if_failed() const override { failure_.throw_if_set(); }
  std::string describe_missing(std::uint64_t sequence) const override;

 private:
  struct Peer {
    int rank;
    Socket socket;
    FrameReader reader;
    FrameWriter writer;
    std::deque<Frame> data, messages;  // that no caller has taken yet
    bool has_left = false;             // it said goodbye
    bool has_ended = false;            // nothing will be received any more
  };

  // The functions from here on are called with mutex_ held.
  Peer& peer(int rank);
  RankWait wait_of(const Peer& peer) const { return {rank(), peer.rank, call_, timeout_seconds_}; }
  // Returns when done() is true. Throws the group's failure as soon as there is one.
  template <typename Done>
  void wait_for(Peer& peer, const Done& done);
  bool receive(Peer& peer);
  void handle(Peer& peer, Frame frame);
  std::vector<pollfd> events_to_await() const;
  // Sleeps until a socket has news or the deadline; moves what there is.
  void move(runtime::Deadline deadline);
  [[noreturn]] void fail_here(const Error& error);
  // Tells all peers of the group's failure, once.
  void spread_failure();
  // Leaves to the thread what the kernel has not taken.
  void leave_unsent_to_thread();
  void deliver_rest();

  // Without mutex_.
  void wake() noexcept;
  void look_after();

  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<Peer*> by_rank_;
  std::vector<Announcements> announced_;  // by rank; any thread may read them
  FirstFailure failure_;
  CallHeader call_;  // the current one
  double timeout_seconds_ = 0;
  std::chrono::microseconds spin_time_{0};
  bool has_spread_failure_ = false;
  std::mutex mutex_;

  FileDescriptor wake_;
  std::atomic<std::uint64_t> num_waits_{0};
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

}  // namespace lockstep::comm
