// Strangers, and clients that hold the token, may say anything to the server of a store.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "engine/core/rng.h"
#include "tests/engine/comm/store_ends.h"

namespace lockstep::comm {
namespace {

std::vector<std::byte> random_bytes(Rng& rng, std::size_t count) {
  std::vector<std::byte> bytes;
  while (bytes.size() < count) bytes.push_back(static_cast<std::byte>(rng.uniform() * 256));
  return bytes;
}

TEST(StoreUnderAttack, RandomBytesAreClosedWithoutAWord) {
  const TcpStoreServer server(server_options());
  Rng rng(3);
  for (int i = 0; i < 200; ++i) {
    const Socket stranger = stranger_of(server);
    send_all(stranger, random_bytes(rng, 4 + static_cast<std::size_t>(i) * 7), soon());
    EXPECT_NE(end_of(stranger), IoResult::done);
  }
  expect_serving(server);
}

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
    send_message(stranger, encode(wrong), soon());
    EXPECT_EQ(end_of(stranger), IoResult::closed);
  }
  const std::string hello = encode(right);
  for (std::size_t size = 0; size < hello.size(); ++size) {
    EXPECT_FALSE(decode_hello(hello.substr(0, size), right)) << size;
  }
  EXPECT_FALSE(decode_hello(hello + "a", right));
  EXPECT_TRUE(decode_hello(hello, right));
  const std::string_view magic = "lockstep 5";
  EXPECT_FALSE(decode_hello(MessageWriter()
                                .text(magic)
                                .text(kStorePurpose)
                                .text(kToken)
                                .number(std::int64_t{1} << 32)
                                .text("a rank that is no int")
                                .bytes(),
                            right));
}

// Every request about the table.
std::vector<std::string> valid_requests() {
  using R = StoreRequest;
  return {request(R::set).text("key").text("value").bytes(),
          request(R::set_if_absent).text("key").text("other").bytes(),
          request(R::try_get).text("key").bytes(),
          request(R::add).text("number").number(1).bytes()};
}

TEST(StoreUnderAttack, ARequestOfAWrongSizeHasNoEffectAndNoAnswer) {
  for (const std::string& whole : valid_requests()) {
    MemoryStore table;
    for (std::size_t size = 0; size < whole.size(); ++size) {
      EXPECT_FALSE(answer_request(table, whole.substr(0, size)));
    }
    EXPECT_FALSE(answer_request(table, whole + "a"));
    EXPECT_FALSE(table.try_get("key"));
    EXPECT_FALSE(table.try_get("number"));
    EXPECT_TRUE(answer_request(table, whole));
  }
}

TEST(StoreUnderAttack, NoBytesOfAClientThatHoldsTheTokenBreakTheTable) {
  Rng rng(5);
  const auto requests = valid_requests();
  MemoryStore table;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = requests[static_cast<std::size_t>(rng.uniform() * 4) % requests.size()];
    for (int flips = 0; flips < 3; ++flips) {
      const auto where = static_cast<std::size_t>(rng.uniform() * 1000) % bytes.size();
      bytes[where] = static_cast<char>(rng.uniform() * 256);
    }
    answer_request(table, bytes);
  }
  for (const std::string& whole : requests) EXPECT_TRUE(answer_request(table, whole));
}

TEST(StoreUnderAttack, ASlowClientHoldsUpNobody) {
  const TcpStoreServer server(server_options());
  const Socket slow = stranger_of(server);
  const std::string hello = MessageWriter().text(encode({kStorePurpose, kToken})).bytes();
  TcpStoreClient other(client_options(server.port()));
  for (std::size_t i = 0; i < hello.size(); ++i) {
    const auto bytes = std::as_bytes(std::span(hello)).subspan(i, 1);
    ASSERT_EQ(send_all(slow, bytes, soon()), IoResult::done);
    EXPECT_EQ(other.add("n", 1), static_cast<std::int64_t>(i) + 1);
  }
  EXPECT_EQ(end_of(slow), IoResult::done) << "slow, but it holds the token";
}

TEST(StoreUnderAttack, AClientThatNeverReadsHoldsUpNobody) {
  const TcpStoreServer server(server_options());
  TcpStoreClient(client_options(server.port())).set("large", std::string(kMaxValueBytes, 'x'));
  const Socket deaf = raw_client_of(server);
  const std::string question = request(StoreRequest::try_get).text("large").bytes();
  for (int i = 0; i < 100; ++i) send_message(deaf, question, soon());
  TcpStoreClient other(client_options(server.port()));
  EXPECT_EQ(other.add("n", 1), 1);
}

}  // namespace
}  // namespace lockstep::comm
