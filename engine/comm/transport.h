// Transport: a group whose ranks are processes, which exchange messages. shm_group.cpp,
// tcp_group.cpp and shm_and_tcp.cpp say how a message reaches its rank; the steps of a plan over
// messages are here.
//
// Messages from one rank to another arrive in the order in which they were posted.
// A destructor delivers what was posted and sent, for a bounded time, then leaves the group: peers
// that still need this rank fail with RankWait::left().
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/group.h"
#include "engine/comm/process_group.h"
#include "engine/comm/store/socket.h"

namespace lockstep::comm {

class Transport : public Group {
 public:
  using Group::Group;

  // Sends a message. When it returns, the data may change: it has been copied, or the kernel has
  // it. May wait for the receiver, but each pair of ranks has room for at least one whole message
  // that its receiver has not taken yet, and a rank that waits goes on receiving. (So ranks that
  // all post, then all take, never wait for each other in a circle.)
  virtual void post(int to, Bytes data) = 0;
  // Waits for the next message from a rank; valid until release(from). One message from each of
  // several ranks may be held at a time. Its size is known: all ranks follow the same plan.
  virtual const std::byte* take(int from) = 0;
  virtual void release(int from) = 0;

  void run_schedule(const plan::RankSchedule& schedule, TensorView buffer,
                    const Reduction& reduction) override;
  void post_note(int to, std::int64_t note) override;
  std::int64_t take_note(int from) override;

 private:
  void run_step(const plan::RankSchedule::Step& step, TensorView buffer,
                const Reduction& reduction);
};

// Shared memory between the ranks of this host. Returns when all have attached.
// ranks: those on this host, in rising order; the transport numbers them 0, 1, ... The first one
// makes the segment.
std::unique_ptr<Transport> shm_transport(const ProcessGroupOptions& options,
                                         const std::vector<int>& ranks);

// TCP, on one host or on several: meets the other ranks through the store and connects to them.
// peers: ranks to connect to, beside this one. Both ends of a pair must agree on it. Announcements
//        and failures go to these ranks only.
// num_local_ranks: ranks on this host; when they outnumber its cores they wait without spinning.
// Throws Error{Timeout} naming the ranks that did not come; Error{Comm} when another rank aborted
// the store. REQUIRES: no two processes have one rank.
std::unique_ptr<Transport> tcp_transport(const ProcessGroupOptions& options,
                                         const std::vector<int>& peers,
                                         std::size_t num_local_ranks);

// The connections to these ranks, by rank; others are not open. Throws what tcp_transport does.
std::vector<Socket> connect_ranks(const ProcessGroupOptions& options,
                                  const std::vector<int>& peers);

// The transport of a group on several hosts: shared memory to the ranks of this host, TCP to all
// others. hosts: GroupShape::hosts. to_host: between the ranks of this host, which it numbers 0, 1,
// ... to_network: to all other ranks, with the numbers of the whole group.
std::unique_ptr<Transport> shm_and_tcp(std::vector<int> hosts, std::unique_ptr<Transport> to_host,
                                       std::unique_ptr<Transport> to_network);

}  // namespace lockstep::comm
