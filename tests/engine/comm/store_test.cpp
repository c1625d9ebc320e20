// The store over TCP: its table, who is let in, and strangers at its port.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/store/tcp_store.h"
#include "tests/support/expect_error.h"
#include "tests/support/ipv6.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::expect_error;
using ::testing::HasSubstr;

const std::string kToken = "a token of this test";

runtime::Deadline soon() {
  return runtime::deadline_after(30);
}

TcpStoreClientOptions client_options(std::uint16_t port, int rank = -1) {
  TcpStoreClientOptions options;
  options.port = port;
  options.token = kToken;
  options.rank = rank;
  return options;
}

class TcpStore : public ::testing::Test {
 protected:
  TcpStoreClient open(int rank = -1) {
    return TcpStoreClient(client_options(server_.port(), rank));
  }
  // A connection that has said nothing yet.
  Socket stranger() { return connect_to("127.0.0.1", server_.port(), soon()); }
  // The table serves its clients as if nothing had happened.
  void expect_serving() { EXPECT_GE(open().add("served", 1), 1); }

  TcpStoreServer server_{{"127.0.0.1", 0, kToken}};
};

// How the server ends a connection to which it says nothing.
IoResult end_of(const Socket& connection) {
  std::array<std::byte, 1> byte;
  return receive_all(connection, byte, soon());
}

// --- the table ---

TEST_F(TcpStore, KeepsAnyBytesUnderAnyKey) {
  TcpStoreClient writer = open();
  TcpStoreClient reader = open();
  std::string all_bytes;
  for (int value = 0; value < 256; ++value) all_bytes.push_back(static_cast<char>(value));
  const std::string large(kMaxValueBytes, 'x');
  writer.set("empty", "");
  writer.set(all_bytes, all_bytes);
  writer.set("large", large);
  EXPECT_EQ(reader.get("empty", soon()), "");
  EXPECT_EQ(reader.get(all_bytes, soon()), all_bytes);
  EXPECT_EQ(reader.get("large", soon()), large);
  EXPECT_EQ(reader.try_get("none"), std::nullopt);
  expect_error(ErrorCode::Usage, "a request has at most",
               [&] { writer.set("none", std::string(2 * kMaxValueBytes, 'v')); });
  EXPECT_EQ(writer.try_get("none"), std::nullopt);
}

TEST_F(TcpStore, AddCountsAcrossClientsAndRefusesWhatIsNoNumber) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      TcpStoreClient store = open();
      for (int i = 0; i < 50; ++i) store.add("n", i % 2 == 0 ? 3 : -1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  TcpStoreClient store = open();
  EXPECT_EQ(store.add("n", 0), 200);
  store.set("word", "12a");
  expect_error(ErrorCode::Usage, "[store] cannot add to the key \"word\"",
               [&] { store.add("word", 1); });
  EXPECT_EQ(store.add("n", 1), 201) << "the connection is whole";
}

TEST_F(TcpStore, GetWaitsForTheKeyUntilTheDeadline) {
  TcpStoreClient waiting = open();
  std::string found;
  std::thread thread([&] { found = waiting.get("late", soon()); });
  TcpStoreClient store = open();
  store.set("late", "value");
  thread.join();
  EXPECT_EQ(found, "value");
  expect_error(ErrorCode::Timeout, "[store] the key \"address of rank 3\" was not there",
               [&] { store.get("address of rank 3", runtime::deadline_after(0.02)); });
}

TEST_F(TcpStore, AnAbortEndsPendingAndLaterCallsOfEverybody) {
  TcpStoreClient store = open();
  std::thread thread([&] {
    TcpStoreClient waiting = open();
    expect_error(ErrorCode::Comm, "[join] two processes have rank 1",
                 [&] { waiting.get("never", soon()); });
  });
  store.abort(Error(ErrorCode::Usage, "join", "two processes have rank 1"));
  store.abort(Error(ErrorCode::Timeout, "join", "another reason"));
  thread.join();
  expect_error(ErrorCode::Comm, "[join] two processes have rank 1", [&] { store.set("a", ""); });
}

TEST(MemoryStore, ABarrierNamesTheRanksThatDidNotCome) {
  MemoryStore store;
  ::testing::internal::CaptureStderr();
  expect_error(ErrorCode::Timeout, "[start] 1 of 4 ranks came within 3.2 s, missing: rank 0, 2, 3",
               [&] { store.barrier("start", 1, 4, 3.2); });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("waiting for rank 0, 2, 3 of 4, 3.2 s at most"));
}

// --- who is let in ---

TEST(TcpStoreServer, ListensOnIpv6) {
  if (!lockstep::testing::has_ipv6()) GTEST_SKIP() << "no IPv6 here";
  const TcpStoreServer server({"::1", 0, kToken});
  TcpStoreClientOptions options = client_options(server.port());
  options.host = "::1";
  EXPECT_EQ(TcpStoreClient(options).add("n", 7), 7);
}

TEST(TcpStoreServer, AnAddressOfAnotherHostIsAnError) {
  expect_error(ErrorCode::Comm,
               "[listen] cannot listen on port 0 of 192.0.2.1: it is not an address", [] {
                 const TcpStoreServer server({"192.0.2.1", 0, kToken});
               });
}

TEST(TcpStoreClient, ComesBeforeTheServer) {
  const std::uint16_t port = TcpStoreServer({"127.0.0.1", 0, kToken}).port();
  std::thread early([&] { TcpStoreClient(client_options(port)).set("key", "value"); });
  const TcpStoreServer server({"127.0.0.1", port, kToken});
  early.join();
  EXPECT_EQ(TcpStoreClient(client_options(port)).try_get("key"), "value");
}

// Its job has not ended yet, and must not take another process for it.
TEST_F(TcpStore, ARankThatHasLeftIsNotGivenToAnother) {
  TcpStoreClient stays = open(0);
  { const TcpStoreClient leaves = open(1); }
  stays.set("still", "here");  // and the server has seen the other one leave
  TcpStoreClientOptions again = client_options(server_.port(), 1);
  again.timeout_seconds = 0.1;
  expect_error(ErrorCode::Comm, "which has left", [&] { const TcpStoreClient client(again); });
  stays.set("still", "here");
}

TEST_F(TcpStore, IsInUseWhileAConnectionHasNotSaidHello) {
  Socket newcomer = stranger();
  expect_serving();  // so it has seen the newcomer
  EXPECT_FALSE(server_.wait_until_unused(0.05));
  newcomer.close();
  EXPECT_TRUE(server_.wait_until_unused(30));
}

TEST(TcpStoreClient, DoesNotWaitItsTimeForAProgramThatTakesConnectionsAndIsSilent) {
  const Socket silent = listen_on("127.0.0.1", 0);
  TcpStoreClientOptions options = client_options(port_of(silent));
  options.timeout_seconds = 3600;
  expect_error(ErrorCode::Timeout, "does not answer: another program listens there",
               [&] { const TcpStoreClient client(options); });
}

// --- strangers ---

TEST_F(TcpStore, AHugeSizeIsRefusedBeforeAnythingElseComes) {
  const std::array<std::byte, 4> size{std::byte{0xff}, std::byte{0xff}, std::byte{0xff},
                                      std::byte{0x7f}};
  const Socket without_hello = stranger();
  send_all(without_hello, size, soon());
  EXPECT_NE(end_of(without_hello), IoResult::done);
  const Socket client = stranger();
  Message answer;
  send_message(client, to_message({kStorePurpose, kToken}), soon());
  EXPECT_EQ(receive_message(client, 64, answer, soon()), IoResult::done);
  send_all(client, size, soon());
  EXPECT_NE(end_of(client), IoResult::done);
  expect_serving();
}

TEST_F(TcpStore, AWrongHelloIsClosedWithoutAWord) {
  for (const Hello& wrong :
       {Hello{"tcp/0", kToken}, Hello{kStorePurpose, kToken + "a"}, Hello{kStorePurpose, ""}}) {
    const Socket connection = stranger();
    send_message(connection, to_message(wrong), soon());
    EXPECT_EQ(end_of(connection), IoResult::closed);
  }
}

// --- errors as bytes ---

TEST(ErrorBytes, AnErrorArrivesAsItWasSent) {
  for (const Error& error :
       {Error(ErrorCode::Shape, "all_reduce", "rank 2 is missing (its last call: nothing)"),
        Error(ErrorCode::Numeric, "a [b] c", "d] [e"), Error(ErrorCode::Timeout, "", ""),
        Error(ErrorCode::Io, std::string(300, 'o'), std::string(70'000, 'm'))}) {
    const Error found = decode_error(encode(error, 1 << 20));
    EXPECT_EQ(found.code(), error.code());
    EXPECT_EQ(found.operation(), error.operation());
    EXPECT_EQ(found.message(), error.message());
  }
}

TEST(ErrorBytes, BytesThatAreNoErrorSaySo) {
  const std::string good = encode(Error(ErrorCode::Comm, "join", ""), 100);
  for (const std::string& bytes : {std::string(), good.substr(0, 1), good.substr(0, 5),
                                   '\x0a' + good.substr(1), '\xff' + good.substr(1)}) {
    EXPECT_EQ(decode_error(bytes).message(), "a rank failed, and its message is unreadable");
  }
}

}  // namespace
}  // namespace lockstep::comm
