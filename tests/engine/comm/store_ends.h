// Both ends of a store over TCP, as the tests of server, client and strangers make them.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "engine/comm/store/tcp_store.h"

namespace lockstep::comm {

inline const std::string kToken = "a token of this test";

inline TcpStoreServerOptions server_options(std::uint16_t port = 0) {
  return {"127.0.0.1", port, kToken};
}

inline TcpStoreClientOptions client_options(std::uint16_t port, const std::string& token = kToken) {
  return {"127.0.0.1", port, token};
}

inline runtime::Deadline soon() {
  return runtime::deadline_after(30);
}

// A connection that has said nothing yet.
inline Socket stranger_of(const TcpStoreServer& server) {
  return connect_to("127.0.0.1", server.port(), soon());
}

// A connection whose hello, as this rank or as none, has been answered.
inline Socket raw_client_of(const TcpStoreServer& server, int rank = -1) {
  Socket client = stranger_of(server);
  Message answer;
  send_message(client, to_message({kStorePurpose, kToken, rank, "process 1 on a"}), soon());
  EXPECT_EQ(receive_message(client, 64, answer, soon()), IoResult::done);
  return client;
}

// How the server ends a connection to which it says nothing.
inline IoResult end_of(const Socket& connection) {
  std::array<std::byte, 1> byte;
  return receive_all(connection, byte, soon());
}

// The table serves its clients as if nothing had happened.
inline void expect_serving(const TcpStoreServer& server) {
  TcpStoreClient client(client_options(server.port()));
  EXPECT_GE(client.add("served", 1), 1);
}

}  // namespace lockstep::comm
