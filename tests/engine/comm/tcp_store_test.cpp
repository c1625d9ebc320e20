// Both ends of a store over TCP, and strangers at its port.
#include <gmock/gmock.h>

#include <array>
#include <optional>
#include <string>
#include <thread>

#include "engine/comm/store/tcp_store.h"
#include "tests/support/expect_error.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::expect_error;
using ::testing::HasSubstr;

const std::string kToken = "a token of this test";

TcpStoreServerOptions server_options(std::uint16_t port = 0) {
  return {"127.0.0.1", port, kToken};
}

TcpStoreClientOptions client_options(std::uint16_t port) {
  return {"127.0.0.1", port, kToken};
}

runtime::Deadline soon() {
  return runtime::deadline_after(30);
}

// A connection that has said nothing yet.
Socket stranger_of(const TcpStoreServer& server) {
  return connect_to("127.0.0.1", server.port(), soon());
}

// A connection whose hello has been answered.
Socket raw_client_of(const TcpStoreServer& server) {
  Socket client = stranger_of(server);
  Message answer;
  send_message(client, to_message({kStorePurpose, kToken}), soon());
  EXPECT_EQ(receive_message(client, 64, answer, soon()), IoResult::done);
  return client;
}

// How the server ends a connection to which it says nothing.
IoResult end_of(const Socket& connection) {
  std::array<std::byte, 1> byte;
  return receive_all(connection, byte, soon());
}

// The table serves its clients as if nothing had happened.
void expect_serving(const TcpStoreServer& server) {
  TcpStoreClient client(client_options(server.port()));
  EXPECT_GE(client.add("served", 1), 1);
}

TEST(TcpStoreServer, AnAddressOfAnotherHostIsAnError) {
  expect_error(ErrorCode::Comm, "[listen] cannot listen on port 0 of 192.0.2.1: it is no address",
               [] {
                 const TcpStoreServer server({"192.0.2.1", 0, kToken});
               });
  expect_error(ErrorCode::Usage,
               "token needs 16 to 256 bytes, so that it cannot be guessed, found 15", [] {
                 const TcpStoreServer server({"127.0.0.1", 0, "of fifteen char"});
               });
}

TEST(TcpStoreClient, ComesBeforeTheServer) {
  std::uint16_t port = 0;
  {
    const TcpStoreServer server(server_options());
    port = server.port();
  }
  std::thread early([&] { TcpStoreClient(client_options(port)).set("key", "value"); });
  std::optional<TcpStoreServer> server;
  server.emplace(server_options(port));
  early.join();
  EXPECT_EQ(TcpStoreClient(client_options(port)).try_get("key"), "value");
}

// The error of a process that comes as this rank.
Error refusal(const TcpStoreServer& server, int rank) {
  TcpStoreClientOptions options = client_options(server.port());
  options.rank = rank;
  options.timeout_seconds = 0.1;
  try {
    const TcpStoreClient client(options);
  } catch (const Error& taken) {
    return taken;
  }
  ADD_FAILURE() << "rank " << rank << " was let in";
  return {ErrorCode::State, "", ""};
}

// Its job has not ended yet, and must not take another process for it.
TEST(TcpStoreClient, ARankThatHasLeftIsNotGivenToAnother) {
  const TcpStoreServer server(server_options());
  TcpStoreClientOptions options = client_options(server.port());
  options.rank = 0;
  TcpStoreClient stays(options);
  {
    options.rank = 1;
    const TcpStoreClient leaves(options);
  }
  stays.set("still", "here");  // and the server has seen the other one leave
  const Error refused = refusal(server, 1);
  EXPECT_THAT(refused.what(), HasSubstr("which has left"));
  stays.set("still", "here");
}

TEST(TcpStoreServer, IsInUseWhileAConnectionHasNotSaidHello) {
  const TcpStoreServer server(server_options());
  Socket newcomer = stranger_of(server);
  expect_serving(server);  // so it has seen the newcomer
  EXPECT_FALSE(server.wait_until_unused(0.05));
  newcomer.close();
  EXPECT_TRUE(server.wait_until_unused(30));
}

TEST(TcpStoreClient, ValuesThatAreTooLargeAreErrors) {
  const TcpStoreServer server(server_options());
  TcpStoreClient client(client_options(server.port()));
  client.set("largest", std::string(kMaxValueBytes, 'v'));
  expect_error(ErrorCode::Usage, "a request has at most",
               [&] { client.set("k", std::string(2 * kMaxValueBytes, 'v')); });
  EXPECT_EQ(client.try_get("k"), std::nullopt);
}

TEST(TcpStoreClient, DoesNotWaitItsTimeForAProgramThatTakesConnectionsAndIsSilent) {
  const Socket silent = listen_on("127.0.0.1", 0);
  TcpStoreClientOptions options = client_options(port_of(silent));
  options.timeout_seconds = 3600;
  expect_error(ErrorCode::Timeout, "does not answer: another program listens there",
               [&] { const TcpStoreClient client(options); });
}

TEST(TcpStoreStrangers, AHugeSizeIsRefusedBeforeAnythingElseComes) {
  const TcpStoreServer server(server_options());
  const std::array<std::byte, 4> size{std::byte{0xff}, std::byte{0xff}, std::byte{0xff},
                                      std::byte{0x7f}};
  const Socket stranger = stranger_of(server);
  send_all(stranger, size, soon());
  EXPECT_NE(end_of(stranger), IoResult::done);
  const Socket client = raw_client_of(server);
  send_all(client, size, soon());
  EXPECT_NE(end_of(client), IoResult::done);
  expect_serving(server);
}

TEST(TcpStoreStrangers, AWrongHelloIsClosedWithoutAWord) {
  const TcpStoreServer server(server_options());
  const Hello right{kStorePurpose, kToken};
  for (const Hello& wrong :
       {Hello{"tcp/0", kToken}, Hello{kStorePurpose, kToken + "a"}, Hello{kStorePurpose, ""}}) {
    const Socket stranger = stranger_of(server);
    send_message(stranger, to_message(wrong), soon());
    EXPECT_EQ(end_of(stranger), IoResult::closed);
  }
  EXPECT_TRUE(to_hello(to_message(right), right));
  Message message = to_message(right);
  message[3] = "4294967296";  // a rank that is no int
  EXPECT_FALSE(to_hello(message, right));
}

}  // namespace
}  // namespace lockstep::comm
