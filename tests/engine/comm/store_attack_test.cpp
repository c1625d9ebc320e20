// Strangers, and clients that hold the token, may say anything to the server of a store.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "engine/core/rng.h"
#include "tests/engine/comm/store_ends.h"

namespace lockstep::comm {
namespace {

TEST(StoreUnderAttack, AThousandSilentStrangersKeepNobodyOut) {
  const TcpStoreServer server(server_options());
  TcpStoreClient early(client_options(server.port()));
  std::vector<Socket> strangers;
  for (int i = 0; i < 1000; ++i) {
    strangers.push_back(stranger_of(server));
    const std::array<std::byte, 3> start{std::byte{'L'}, std::byte{'O'}, std::byte{'C'}};
    send_all(strangers.back(), std::span(start).first(static_cast<std::size_t>(i) % 4), soon());
  }
  expect_serving(server);
  EXPECT_EQ(early.add("n", 1), 1);
  EXPECT_EQ(end_of(strangers.front()), IoResult::reset) << "the oldest make room";
}

TEST(StoreUnderAttack, AHugeSizeIsRefusedBeforeAnythingElseComes) {
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

TEST(StoreUnderAttack, AWrongHelloIsClosedWithoutAWord) {
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

TEST(StoreUnderAttack, BytesThatAreNoRequestHaveNoEffect) {
  MemoryStore table;
  const std::vector<Message> wrong{{},       {"set", "key"}, {"set", "key", "value", ""},
                                   {"get"},  {"add", "key"}, {"add", "key", "1x"},
                                   {"leave"}};
  for (const Message& request : wrong) EXPECT_EQ(answer_request(table, request)[0], "failed");
  const std::string whole = encode({"set", "other", "value"}).substr(4);
  for (std::size_t size = 1; size < whole.size(); ++size) {
    if (const auto cut = decode_message(whole.substr(0, size))) {
      EXPECT_EQ(answer_request(table, *cut)[0], "failed") << size;
    }
  }
  EXPECT_FALSE(table.try_get("other"));
  EXPECT_EQ(answer_request(table, *decode_message(whole)), Message{"ok"});
}

TEST(StoreUnderAttack, ASlowClientHoldsUpNobody) {
  const TcpStoreServer server(server_options());
  const Socket slow = stranger_of(server);
  const std::string hello = encode(to_message({kStorePurpose, kToken}));
  TcpStoreClient other(client_options(server.port()));
  for (std::size_t i = 0; i < hello.size(); ++i) {
    const auto bytes = std::as_bytes(std::span(hello)).subspan(i, 1);
    ASSERT_EQ(send_all(slow, bytes, soon()), IoResult::done);
    EXPECT_EQ(other.add("n", 1), static_cast<std::int64_t>(i) + 1);
  }
  EXPECT_EQ(end_of(slow), IoResult::done) << "slow, but it holds the token";
}

}  // namespace
}  // namespace lockstep::comm
