// How the ranks of a group get connected: every rank listens on a free port and publishes it in the
// store; of two ranks the higher one connects and says hello, and the lower one accepts and
// answers. Strangers are treated as the store's are (hello.h): a rank whose connection is cut
// connects again.
#pragma once

#include <vector>

#include "engine/comm/store/socket.h"
#include "engine/comm/store/store.h"
#include "engine/comm/transport/tcp/tcp_transport.h"

namespace lockstep::comm {

// The connections to the ranks `peers`, by rank; others are not open. Never blocking.
// Throws what TcpTransport's constructor does; the store is aborted then, so that all ranks hear of
// it, but not for DuplicateRank.
std::vector<Socket> connect_ranks(const TcpTransportOptions& options, const std::vector<int>& peers,
                                  Store& store);

}  // namespace lockstep::comm
