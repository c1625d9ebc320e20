// The transport between processes over TCP sockets: on one host, or on several.
//
// Every pair of ranks shares one connection, made when the transport is constructed: every rank
// listens on a free port and publishes it in the store; of two ranks the higher one connects and
// says hello (tcp_mesh.cpp).
//
// A thread that waits for a peer, to hear from it or because its socket is full, receives from this
// peer itself: first it asks again and again for a moment, then it sleeps in poll(). From all other
// peers a thread of their own receives, so that ranks that send to each other never block each
// other by full sockets, and a peer that fails is noticed. A frame on a connection is a
// FrameHeader, and a payload:
//
//   kind      payload                     means
//   announce  none                        the rank called this collective
//   data      elements                    the next message of the collective's plan
//   message   elements                    a message of send(); receivers compare size and dtype
//   failure   error (comm_errors.h)       the group failed, with this error
//   goodbye   none                        the rank leaves properly; nothing follows
//
// Failing: a connection that ends without a goodbye fails the group with Error{Comm} that names the
// rank; a rank that finds a failure sends it to all others, so that all ranks report the same.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/comm/announcements.h"
#include "engine/comm/comm_errors.h"
#include "engine/comm/process_group.h"
#include "engine/comm/store/socket.h"
#include "engine/comm/transport.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {

enum class FrameKind : std::uint32_t { announce = 1, data, message, failure, goodbye };

// Sent as it lies: all ranks run the same program, on machines of the same byte order.
struct FrameHeader {
  FrameKind kind = FrameKind::announce;
  CallHeader call = {};
  std::uint64_t num_bytes = 0;  // of the payload
};

// The connections to these ranks, by rank; others are not open.
// Throws what TcpTransport's constructor does.
std::vector<Socket> connect_ranks(const ProcessGroupOptions& options,
                                  const std::vector<int>& peers);

class TcpTransport final : public Transport {
 public:
  // Meets the other ranks through the store and connects to them.
  // peers: ranks to connect to, beside this one. Both ends of a pair must agree on it.
  //        Announcements and failures go to these ranks only.
  // num_local_ranks: ranks on this host; when they outnumber its cores they wait without spinning.
  // Throws Error{Timeout} naming the ranks that did not come; Error{Comm} when another rank aborted
  // the store. REQUIRES: no two processes have one rank.
  TcpTransport(const ProcessGroupOptions& options, const std::vector<int>& peers,
               std::size_t num_local_ranks);
  ~TcpTransport() override;

  void announce(const CallHeader& call, double timeout_seconds) override;
  CallHeader announced_by(int peer) override;
  void post(int to, Bytes data) override;
  const std::byte* take(int from) override;
  void release(int from) override;
  void send_message(int to, const CallHeader& call, Bytes data) override;
  void receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                       double timeout_seconds) override;
  void fail(const Error& error) noexcept override;
  void throw_if_failed() const override { failure_.throw_if_set(); }
  const Announcements* announced(int rank) const override;

 private:
  struct Frame;
  struct Peer;
  struct Awaiting;

  Peer& peer(int rank) const;
  template <typename Done>
  void wait_for(Peer& peer, const Done& done);

  void send(Peer& peer, FrameKind kind, const CallHeader& call, Bytes payload);
  bool try_to_send(Peer& peer, FrameHeader header, Bytes payload, runtime::Deadline deadline);

  void read_from(Peer& peer);
  bool receive(Peer& peer);
  void prepare_payload(Peer& peer);
  void handle(Peer& peer, Frame frame);
  void tell_failure() noexcept;

  std::vector<std::unique_ptr<Peer>> by_rank_;  // none: this rank, and those that are no peers
  std::vector<Announcements> announced_;        // by rank
  FirstFailure failure_;
  std::mutex telling_;  // held while all peers are told of the failure
  bool has_told_ = false;
  std::chrono::microseconds spin_time_;
  std::atomic<bool> is_leaving_{false};
};

}  // namespace lockstep::comm
