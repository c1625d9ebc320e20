// What strangers, and clients that hold the token, may say to the server of a store.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "engine/comm/store/store_protocol.h"
#include "engine/comm/store/store_session.h"
#include "engine/comm/store/token_handshake.h"
#include "engine/core/rng.h"
#include "tests/engine/comm/store_ends.h"

namespace lockstep::comm {
namespace {

// A connection that has said a valid hello, and been answered.
struct Waiting {
  Socket socket;
  ClientHandshake handshake{kToken, kStorePurpose};
  Answer answer{};
};
Waiting waiting_at(const TcpStoreServer& server) {
  Waiting client{stranger_of(server)};
  EXPECT_EQ(send_all(client.socket, client.handshake.hello(), soon()), IoResult::done);
  EXPECT_EQ(receive_all(client.socket, client.answer, soon()), IoResult::done);
  return client;
}

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
    send_all(stranger, random_bytes(rng, kHelloBytes + static_cast<std::size_t>(i) * 7), soon());
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

TEST(StoreUnderAttack, WhoHasSaidAValidHelloMakesRoomForNoStranger) {
  const TcpStoreServer server(server_options());
  const Waiting slow = waiting_at(server);
  std::vector<Socket> strangers;
  for (std::size_t i = 0; i < 5 * kMaxStrangers; ++i) strangers.push_back(stranger_of(server));
  EXPECT_EQ(end_of(strangers.front()), IoResult::reset);
  const auto request = StoreWriter(StoreRequest::num_keys).finish();
  send_all(slow.socket, *slow.handshake.proof(slow.answer), soon());
  send_all(slow.socket, request, soon());
  EXPECT_EQ(end_of(slow.socket), IoResult::done) << "an answer";
}

// Whoever has recorded a hello can repeat it, but no more.
TEST(StoreUnderAttack, ThoseThatWaitWithAValidHelloHaveABoundedNumberOfPlaces) {
  const TcpStoreServer server(server_options());
  std::vector<Waiting> waiting;
  for (std::size_t i = 0; i <= kMaxStrangers; ++i) waiting.push_back(waiting_at(server));
  EXPECT_EQ(end_of(waiting.front().socket), IoResult::reset);
  expect_serving(server);
}

// Every message that a client can send.
std::vector<std::vector<std::byte>> valid_requests() {
  using R = StoreRequest;
  return {StoreWriter(R::set).text("key").text("value").finish(),
          StoreWriter(R::set_if_absent).text("key").text("other").finish(),
          StoreWriter(R::get).number(0).text("key").finish(),
          StoreWriter(R::try_get).text("key").finish(),
          StoreWriter(R::add).text("number").number(1).finish(),
          StoreWriter(R::wait).number(0).count(2).text("key").text("none").finish(),
          StoreWriter(R::erase).text("key").finish(),
          StoreWriter(R::num_keys).finish(),
          StoreWriter(R::clock).finish(),
          StoreWriter(R::register_rank).number(7).text("process 1 on a").finish()};
}

class ProvenSession {
 public:
  explicit ProvenSession(StoreState& state) : session(state) {
    const ClientHandshake handshake(state.token, kStorePurpose);
    session.receive(handshake.hello());
    Answer answer;
    std::ranges::copy(session.output(), answer.begin());
    session.was_sent(answer.size());
    session.receive(*handshake.proof(answer));
    EXPECT_TRUE(session.is_proven());
  }
  // As a server does it: never more than it wants, and every answer is read. Whether there was one.
  bool feed(std::span<const std::byte> bytes) {
    bool has_answered = false;
    while (!bytes.empty() && !session.is_over()) {
      const std::size_t count = std::min(session.num_bytes_wanted(), bytes.size());
      if (count == 0) break;
      session.receive(bytes.first(count));
      bytes = bytes.subspan(count);
      has_answered = has_answered || !session.output().empty();
      session.was_sent(session.output().size());
    }
    return has_answered;
  }
  StoreSession session;
};

TEST(StoreUnderAttack, AMessageCutShortHasNoEffectAndNoAnswer) {
  for (const auto& request : valid_requests()) {
    for (std::size_t size = 0; size < request.size(); ++size) {
      StoreState state{kToken, {}, {}, {}};
      ProvenSession client(state);
      EXPECT_FALSE(client.feed(std::span(request).first(size)));
      client.session.connection_ended();
      EXPECT_EQ(state.table.num_keys(), 0U);
      EXPECT_FALSE(state.failure.is_set());
    }
  }
}

TEST(StoreUnderAttack, AMessageWhoseSizeLiesEndsItsConnection) {
  for (auto request : valid_requests()) {
    if (request.size() == kStoreHeaderBytes) continue;
    StoreState state{kToken, {}, {}, {}};
    ProvenSession client(state);
    request[0] = static_cast<std::byte>(std::to_integer<int>(request[0]) - 1);
    client.feed(request);
    EXPECT_TRUE(client.session.is_over());
    EXPECT_EQ(state.table.num_keys(), 0U);
  }
}

TEST(StoreUnderAttack, ARankThatIsNoIntIsNobodysRank) {
  StoreState state{kToken, {}, {}, {}};
  ProvenSession client(state);
  constexpr std::int64_t kRankZeroIfCutOff = std::int64_t{1} << 32;
  EXPECT_FALSE(client.feed(
      StoreWriter(StoreRequest::register_rank).number(kRankZeroIfCutOff).text("liar").finish()));
  EXPECT_TRUE(client.session.is_over());
  EXPECT_TRUE(state.ranks.empty());
}

TEST(StoreUnderAttack, NoBytesOfAClientThatHoldsTheTokenBreakTheTable) {
  Rng rng(5);
  const auto requests = valid_requests();
  for (int round = 0; round < 3000; ++round) {
    StoreState state{kToken, {}, {}, {}};
    ProvenSession client(state);
    for (int i = 0; i < 4; ++i) {
      auto bytes = requests[static_cast<std::size_t>(rng.uniform() * 9) % requests.size()];
      for (int flips = 0; flips < 3; ++flips) {
        const auto where = static_cast<std::size_t>(rng.uniform() * 1000) % bytes.size();
        bytes[where] = static_cast<std::byte>(rng.uniform() * 256);
      }
      client.feed(bytes);
    }
    client.feed(random_bytes(rng, 64));
    client.session.connection_ended();
    EXPECT_LE(state.table.num_keys(), 4U);
  }
}

TEST(StoreUnderAttack, ASlowClientHoldsUpNobody) {
  const TcpStoreServer server(server_options());
  const Socket slow = stranger_of(server);
  const ClientHandshake handshake(kToken, kStorePurpose);
  const Hello hello = handshake.hello();
  TcpStoreClient other(client_options(server.port()));
  for (std::size_t i = 0; i < hello.size(); ++i) {
    ASSERT_EQ(send_all(slow, std::span(hello).subspan(i, 1), soon()), IoResult::done);
    EXPECT_EQ(other.add("n", 1), static_cast<std::int64_t>(i) + 1);
  }
  Answer answer;
  EXPECT_EQ(receive_all(slow, answer, soon()), IoResult::done) << "slow, but it holds the token";
}

TEST(StoreUnderAttack, AClientThatNeverReadsHoldsUpNobody) {
  const TcpStoreServer server(server_options());
  TcpStoreClient(client_options(server.port())).set("large", std::string(kMaxValueBytes, 'x'));
  const Socket deaf = stranger_of(server);
  const ClientHandshake handshake(kToken, kStorePurpose);
  send_all(deaf, handshake.hello(), soon());
  Answer answer;
  ASSERT_EQ(receive_all(deaf, answer, soon()), IoResult::done);
  send_all(deaf, *handshake.proof(answer), soon());
  const auto request = StoreWriter(StoreRequest::try_get).text("large").finish();
  for (int i = 0; i < 100; ++i) send_all(deaf, request, soon());
  TcpStoreClient other(client_options(server.port()));
  EXPECT_EQ(other.num_keys(), 1U);
}

}  // namespace
}  // namespace lockstep::comm
