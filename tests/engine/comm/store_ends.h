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
  return {"127.0.0.1", port, token, 30, {}, {}};
}

inline runtime::Deadline soon() {
  return runtime::deadline_after(30);
}

// A connection that has said nothing yet.
inline Socket stranger_of(const TcpStoreServer& server) {
  return connect_to("127.0.0.1", server.port(), soon());
}

// A connection whose hello has been answered.
inline Socket client_without_rank(const TcpStoreServer& server) {
  Socket client = stranger_of(server);
  std::string answer;
  EXPECT_EQ(say_hello(client, {kStorePurpose, kToken}, 64, answer, soon()), IoResult::done);
  return client;
}

inline MessageWriter request(StoreRequest kind) {
  return MessageWriter().number(static_cast<std::int64_t>(kind));
}

// How the server ends a connection to which it says nothing.
inline IoResult end_of(const Socket& connection) {
  std::array<std::byte, 1> byte;
  return receive_all(connection, byte, soon());
}

// The table serves its clients as if nothing had happened.
inline void expect_serving(const TcpStoreServer& server) {
  TcpStoreClient client(client_options(server.port()));
  EXPECT_EQ(client.add("served", 1), 1);
  client.erase("served");
}

}  // namespace lockstep::comm
