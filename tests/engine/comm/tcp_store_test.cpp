#include <fmt/format.h>
#include <gmock/gmock.h>
#include <poll.h>

#include <thread>

#include "engine/comm/comm_errors.h"
#include "engine/comm/host_identity.h"
#include "tests/engine/comm/store_ends.h"
#include "tests/support/expect_error.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::expect_error;
using ::testing::HasSubstr;

TEST(TcpStoreServer, AnAddressOfAnotherHostIsAnError) {
  expect_error(ErrorCode::Comm, "[listen] cannot listen on port 0 of 192.0.2.1: it is no address",
               [] {
                 const TcpStoreServer server({"192.0.2.1", 0, kToken});
               });
  expect_error(ErrorCode::Usage, "token has 16 ... 256 bytes, so that nobody guesses it, found 15",
               [] {
                 const TcpStoreServer server({"127.0.0.1", 0, "of fifteen char"});
               });
}

TEST(TcpStoreServer, EveryAddressServesBothFamilies) {
  const TcpStoreServer server({"::", 0, kToken});
  TcpStoreClientOptions options = client_options(server.port());
  EXPECT_EQ(TcpStoreClient(options).local_address(), "127.0.0.1");
  options.host = "localhost";
  EXPECT_EQ(TcpStoreClient(options).try_get("key"), std::nullopt);
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

TEST(TcpStoreClient, NamesTheAddressWhereNobodyAnswered) {
  std::uint16_t port = 0;
  {
    const TcpStoreServer server(server_options());
    port = server.port();
  }
  TcpStoreClientOptions options = client_options(port);
  options.timeout_seconds = 0.05;
  expect_error(
      ErrorCode::Timeout,
      fmt::format("nobody answered at 127.0.0.1 port {} in time: Connection refused", port),
      [&] { const TcpStoreClient client(options); });
}

TEST(TcpStoreClient, AnAbortIsInTheWordsOfWhoAborted) {
  const TcpStoreServer server(server_options());
  TcpStoreClient client(client_options(server.port()));
  client.abort(Error(ErrorCode::Timeout, "join", "2 of 3 ranks came"));
  try {
    client.set("a", "");
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[join] 2 of 3 ranks came");
  }
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

TEST(TcpStoreServer, KnowsWhenTheLastClientHasLeft) {
  const TcpStoreServer server(server_options());
  {
    TcpStoreClient client(client_options(server.port()));
    EXPECT_FALSE(server.wait_until_unused(0));
  }
  EXPECT_TRUE(server.wait_until_unused(30));
}

TEST(TcpStoreServer, IsInUseWhileAConnectionHasNotSaidHello) {
  const TcpStoreServer server(server_options());
  Socket newcomer = stranger_of(server);
  expect_serving(server);  // so it has seen the newcomer
  EXPECT_FALSE(server.wait_until_unused(0.05));
  newcomer.close();
  EXPECT_TRUE(server.wait_until_unused(30));
}

// As a server does that strangers keep busy: before a hello comes, or after.
void cut_connections(const Socket& listener, int count) {
  for (int i = 0; i < count; ++i) {
    Socket connection;
    while (!connection.is_open()) {
      wait_for_event(listener, POLLIN, soon());
      connection = accept_from(listener);
    }
    Message hello;
    if (i % 2 == 1) receive_message(connection, 2048, hello, soon());
    connection.reset();
  }
}

TEST(TcpStoreClient, TriesAgainWhenItIsCut) {
  Socket busy = listen_on("127.0.0.1", 0);
  const TcpStoreClientOptions options = client_options(port_of(busy));
  std::thread client([&] { TcpStoreClient(options).set("key", "value"); });
  cut_connections(busy, 20);
  busy.close();
  const TcpStoreServer server(server_options(options.port));
  client.join();
  EXPECT_EQ(TcpStoreClient(options).try_get("key"), "value");
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

}  // namespace
}  // namespace lockstep::comm
