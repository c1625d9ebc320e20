// The transport between processes over TCP sockets: on one host, or on several.
//
// Every pair of ranks shares one connection, made when the transport is constructed: each rank
// listens on a free port, publishes its address in the store, connects to the lower ranks and
// accepts the higher ones. Both ends of a connection prove the job's token first. The wire format
// is in frame.h.
//
// Sockets are never blocking. The thread that waits (in take(), announced_by(), ...) moves all
// bytes that can be moved, in both directions; when nobody waits, a thread of the transport sends
// what is left over and watches for peers that fail. It sleeps while nothing happens.
//
// Failing: a connection that ends without a goodbye fails the group with Error{Comm} that names the
// rank; whoever finds a failure sends it to all others, so that all ranks report the same.
#pragma once

#include <string>
#include <vector>

#include "engine/comm/comm_errors.h"
#include "engine/comm/store/store.h"
#include "engine/comm/transport.h"
#include "engine/comm/transport/tcp/tcp_link.h"

namespace lockstep::comm {

struct TcpTransportOptions {
  int rank = 0;
  int world_size = 1;
  // Of the job; ranks with another token are strangers.
  std::string token;
  // Tells groups of one job apart; part of the keys in the store.
  std::string group = "0";
  // Under which the other ranks reach this one, and on which it listens: an address of this host.
  std::string address = "127.0.0.1";
  // Ranks on this host, of which more than its cores wait without spinning; 0: all of them.
  int num_local_ranks = 0;
  // Ranks to connect to, beside this one; empty: all. Both ends of a pair must agree on it.
  // Announcements and failures go to these ranks only.
  std::vector<int> peers;
  // For all connections to be made.
  double timeout_seconds = 30;
};

class TcpTransport final : public Transport {
 public:
  // Meets the other ranks through the store and connects to them.
  // Throws Error{Timeout} naming the ranks that did not come. Error{Comm} when another rank aborted
  // the store; DuplicateRank, on this rank alone, when another process has its number.
  TcpTransport(const TcpTransportOptions& options, Store& store);
  // Leaves the group: whoever still needs this rank fails. What was sent is delivered first.
  ~TcpTransport() override = default;

  void announce(const CallHeader& call, double timeout_seconds) override;
  CallHeader announced_by(int peer) override;

  void post(int to, Bytes data) override;
  const std::byte* take(int from, std::size_t num_bytes) override;
  void release(int from) override;

  void send_message(int to, const CallHeader& call, Bytes data) override;
  void receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                       double timeout_seconds) override;

  void fail(const Error& error) noexcept override;
  void throw_if_failed() const override;
  std::string describe_missing(std::uint64_t sequence) const override;

 private:
  template <typename Done>
  void wait_for(int peer, const Done& done);
  void require_expected(int from, const FrameHeader& header, std::size_t num_bytes);
  RankWait wait_of(int peer) const { return {rank(), peer, call_, timeout_seconds_}; }

  TcpLink link_;
  CallHeader call_;  // the current one
  double timeout_seconds_ = 0;
};

}  // namespace lockstep::comm
