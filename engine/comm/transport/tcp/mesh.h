// How the ranks of a group get connected: every rank listens on a free port and publishes it in
// the store; of two ranks the higher one connects and the lower one accepts. After the token
// handshake both ends send a greeting of 64 bytes: magic, rank, world size, and the group's name as
// a digest. Strangers are treated as the store's are (tcp_store_server.h): whoever connects tries
// again when it is cut.
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
