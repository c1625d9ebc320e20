// The ways in which the processes of a group reach each other, made when they have met.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/comm/process_group.h"
#include "engine/comm/store/socket.h"
#include "engine/comm/transport.h"

namespace lockstep::comm {

// The number of ranks that share this rank's cores.
inline std::size_t num_sharing_cores(const ProcessGroupOptions& options,
                                     std::size_t num_local_ranks) {
  return options.cores == ProcessGroupOptions::Cores::own ? 1 : num_local_ranks;
}

// Shared memory between the ranks of this host. Returns when all have come.
// ranks: those on this host, in rising order; the transport numbers them 0, 1, ...
// why_not: if a rank of the group cannot share its memory, what hinders it; the result is nullptr
//          then, on all ranks.
std::unique_ptr<Transport> shm_transport(const ProcessGroupOptions& options,
                                         const std::vector<int>& ranks, std::string& why_not);

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
