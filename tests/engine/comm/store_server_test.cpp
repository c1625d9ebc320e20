#include <fmt/format.h>
#include <gmock/gmock.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "engine/comm/rank_taken.h"
#include "engine/comm/store/socket.h"
#include "engine/comm/store/store_session.h"
#include "engine/comm/store/tcp_store_client.h"
#include "engine/comm/store/tcp_store_server.h"
#include "engine/core/rng.h"
#include "tests/support/expect_error.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::expect_error;
using ::testing::HasSubstr;

const std::string kToken = "a token of this test";

TcpStoreServerOptions server_options(std::uint16_t port = 0) {
  return {"127.0.0.1", port, kToken};
}

TcpStoreClientOptions client_options(std::uint16_t port, const std::string& token = kToken) {
  return {"127.0.0.1", port, token, 30, {}, {}};
}

runtime::Deadline soon() {
  return runtime::deadline_after(30);
}

// A connection that has said nothing yet.
Socket stranger_of(const TcpStoreServer& server) {
  return connect_to("127.0.0.1", server.port(), soon());
}

bool is_closed_without_a_word(const Socket& connection) {
  std::array<std::byte, 1> byte;
  return receive_all(connection, byte, soon()) == IoResult::closed;
}

std::vector<std::byte> random_bytes(Rng& rng, std::size_t count) {
  std::vector<std::byte> bytes;
  while (bytes.size() < count) bytes.push_back(static_cast<std::byte>(rng.uniform() * 256));
  return bytes;
}

// The table serves its clients as if nothing had happened.
void expect_serving(const TcpStoreServer& server) {
  TcpStoreClient client(client_options(server.port()));
  EXPECT_EQ(client.add("served", 0), 0);
  EXPECT_EQ(client.num_keys(), 1U);
  EXPECT_TRUE(client.erase("served"));
}

TEST(Sha256, GivesThePublishedDigests) {
  const auto hex = [](const Digest& digest) {
    std::string text;
    for (const std::byte byte : digest) text += fmt::format("{:02x}", std::to_integer<int>(byte));
    return text;
  };
  const auto bytes = [](std::string_view text) { return std::as_bytes(std::span(text)); };
  EXPECT_EQ(hex(sha256(bytes("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256(bytes("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(hmac_sha256("Jefe", bytes("what do ya want for nothing?"))),  // RFC 4231
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(TokenHandshake, NeedsTheSameTokenAndPurposeAtBothEnds) {
  const ClientHandshake client("token", "store");
  ServerHandshake same("token", "store");
  ServerHandshake other_token("Token", "store");
  ServerHandshake other_purpose("token", "tcp");
  EXPECT_FALSE(other_token.answer(client.hello()));
  EXPECT_FALSE(other_purpose.answer(client.hello()));
  const auto answer = same.answer(client.hello());
  ASSERT_TRUE(answer);
  auto proof = client.proof(*answer);
  ASSERT_TRUE(proof);
  EXPECT_TRUE(same.is_proven(*proof));
  (*proof)[31] ^= std::byte{1};
  EXPECT_FALSE(same.is_proven(*proof));
}

TEST(TokenHandshake, ARecordedHandshakeOpensNoOtherConnection) {
  const ClientHandshake client("token", "store");
  ServerHandshake first("token", "store");
  const auto proof = client.proof(*first.answer(client.hello()));
  ServerHandshake second("token", "store");
  const auto answer = second.answer(client.hello());  // replayed
  ASSERT_TRUE(answer);
  EXPECT_FALSE(second.is_proven(*proof));
  EXPECT_FALSE(ClientHandshake("token", "store").proof(*answer)) << "an answer is for one client";
}

TEST(TcpStoreServer, APortInUseIsNamedWithTheWayOut) {
  const TcpStoreServer server(server_options());
  expect_error(ErrorCode::Comm,
               fmt::format("[listen] port {} of 127.0.0.1 is in use by another program; choose "
                           "another --master-port, or --standalone",
                           server.port()),
               [&] { const TcpStoreServer second(server_options(server.port())); });
}

TEST(TcpStoreServer, AnAddressOfAnotherHostIsAnError) {
  expect_error(ErrorCode::Comm, "[listen] cannot listen on port 0 of 192.0.2.1", [] {
    const TcpStoreServer server({"192.0.2.1", 0, kToken});
  });
  expect_error(ErrorCode::Usage, "token has 1 ... 256 bytes, found 0", [] {
    const TcpStoreServer server({"127.0.0.1", 0, ""});
  });
}

TEST(TcpStoreServer, EveryAddressServesBothFamilies) {
  const TcpStoreServer server({"::", 0, kToken});
  TcpStoreClient client(client_options(server.port()));
  EXPECT_EQ(client.local_address(), "127.0.0.1");
}

// From now on this process is one whose kernel has no IPv6 (ipv6.disable=1). Says whether it is.
bool lose_ipv6() {
  std::array<sock_filter, 6> program{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(TcpStoreServer, EveryAddressIsThatOfIPv4WhereThereIsNoIPv6) {
  enum Code : int { served, not_served, cannot_lose_ipv6 };
  const auto serve = [] {
    if (!lose_ipv6()) _exit(cannot_lose_ipv6);
    const TcpStoreServer server({"::", 0, kToken});
    TcpStoreClient client(client_options(server.port()));
    client.set("key", "value");
    _exit(client.try_get("key") == "value" ? served : not_served);
  };
  const auto is_served_or_cannot_tell = [](int status) {
    return WIFEXITED(status) &&
           (WEXITSTATUS(status) == served || WEXITSTATUS(status) == cannot_lose_ipv6);
  };
  EXPECT_EXIT(serve(), is_served_or_cannot_tell, "");
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

TEST(TcpStoreClient, AWrongTokenIsAnErrorAtBothEnds) {
  const TcpStoreServer server(server_options());
  for (const char* token : {"a token of this tesT", "x", "a token of this test "}) {
    expect_error(ErrorCode::Comm, "closed the connection: it belongs to a job with another token",
                 [&] { const TcpStoreClient client(client_options(server.port(), token)); });
  }
  expect_serving(server);
}

TEST(TcpStoreClient, AServerThatGoesEndsPendingAndLaterCalls) {
  std::optional<TcpStoreServer> server;
  server.emplace(server_options());
  TcpStoreClient client(client_options(server->port()));
  client.set("a", "");
  server.reset();
  expect_error(ErrorCode::Comm, "is gone", [&] { client.get("b", soon()); });
  expect_error(ErrorCode::Comm, "is gone", [&] { client.set("b", ""); });
}

TEST(TcpStoreClient, SaysWhoServesAndSaysItAgain) {
  std::optional<TcpStoreServer> server;
  server.emplace(server_options());
  TcpStoreClientOptions options = client_options(server->port());
  options.served_by = "rank 0";
  TcpStoreClient client(options);
  client.set("a", "");
  server.reset();
  const std::string words = fmt::format(
      "[store] rank 0, which serves the store at 127.0.0.1 port {}, is gone: its process ended, or "
      "was killed",
      options.port);
  expect_error(ErrorCode::Comm, words, [&] { client.get("b", soon()); });
  expect_error(ErrorCode::Comm, words, [&] { client.try_get("b"); });
}

TEST(TcpStoreClient, AnAbortIsInTheWordsOfWhoAborted) {
  const TcpStoreServer server(server_options());
  TcpStoreClient client(client_options(server.port()));
  client.abort("[join] 2 of 3 ranks came");
  try {
    client.set("a", "");
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[join] 2 of 3 ranks came");
  }
}

TEST(TcpStoreClient, ARankThatEndsWithoutLeavingAbortsTheRendezvous) {
  const TcpStoreServer server(server_options());
  TcpStoreClientOptions options = client_options(server.port());
  options.rank = 0;
  TcpStoreClient survivor(options);
  {
    options.rank = 1;
    const TcpStoreClient leaves_properly(options);
  }
  survivor.set("still", "here");
  // A child that dies with the connection of rank 2, as a killed process does.
  Socket raw = stranger_of(server);
  const ClientHandshake handshake(kToken, kStorePurpose);
  send_all(raw, handshake.hello(), soon());
  Answer answer;
  ASSERT_EQ(receive_all(raw, answer, soon()), IoResult::done);
  send_all(raw, *handshake.proof(answer), soon());
  send_all(raw, StoreWriter(StoreRequest::register_rank).number(2).text("process 1 on a").finish(),
           soon());
  raw.close();
  expect_error(ErrorCode::Comm, "[store] rank 2 ended without leaving",
               [&] { survivor.get("address of rank 2", soon()); });
}

// What a process hears that comes as this rank.
RankTaken refusal(const TcpStoreServer& server, int rank) {
  TcpStoreClientOptions options = client_options(server.port());
  options.rank = rank;
  try {
    const TcpStoreClient client(options);
  } catch (const RankTaken& taken) {
    return taken;
  }
  ADD_FAILURE() << "rank " << rank << " was let in";
  return {"", ""};
}

TEST(TcpStoreClient, ASecondProcessWithARankIsRefusedByNameAndTheFirstGoesOn) {
  const TcpStoreServer server(server_options());
  TcpStoreClientOptions options = client_options(server.port());
  options.rank = 1;
  TcpStoreClient first(options);
  for (int i = 0; i < 3; ++i) {
    const RankTaken refused = refusal(server, 1);
    EXPECT_EQ(refused.holder(), RankTaken::Holder::is_here);
    EXPECT_THAT(refused.what(),
                HasSubstr(fmt::format("[join] rank 1 of this job is taken by {}, so process",
                                      name_of_this_process())));
    EXPECT_THAT(refused.what(),
                HasSubstr(fmt::format("another job using port {}?", server.port())));
  }
  first.set("still", "here");
  EXPECT_THAT(first.try_get(kRefusedKey).value_or(""), HasSubstr("came as rank 1 and was refused"));
}

// Its job has not ended yet, and must not take somebody else for it.
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
  const RankTaken refused = refusal(server, 1);
  EXPECT_EQ(refused.holder(), RankTaken::Holder::has_left);
  EXPECT_THAT(refused.what(), HasSubstr("which has left"));
  stays.set("still", "here");
}

TEST(TcpStoreServer, LetsNobodyInAsARankOnceAllRanksHaveCome) {
  TcpStoreServerOptions of_two = server_options();
  of_two.num_expected_clients = 2;
  const TcpStoreServer server(of_two);
  TcpStoreClientOptions options = client_options(server.port());
  options.rank = 0;
  TcpStoreClient zero(options);
  options.rank = 1;
  TcpStoreClient one(options);
  EXPECT_THAT(refusal(server, 3).what(),
              HasSubstr("all 2 ranks of this job have come, and rank 3 is none of them"));
  EXPECT_THAT(refusal(server, 0).what(), HasSubstr("rank 0 of this job is taken"));
  zero.set("still", "here");
  one.set("still", "here");
}

TEST(TcpStoreServer, KnowsWhenTheLastClientHasLeft) {
  const TcpStoreServer server(server_options());
  {
    TcpStoreClient client(client_options(server.port()));
    client.num_keys();  // it has been let in
    EXPECT_EQ(server.num_clients(), 1U);
    EXPECT_FALSE(server.wait_until_unused(0));
  }
  EXPECT_TRUE(server.wait_until_unused(30));
}

TEST(TcpStoreServer, IsInUseWhileSomebodyProvesItself) {
  const TcpStoreServer server(server_options());
  Socket newcomer = stranger_of(server);
  expect_serving(server);  // so it has seen the newcomer
  EXPECT_FALSE(server.wait_until_unused(0.05));
  newcomer.close();
  EXPECT_TRUE(server.wait_until_unused(30));
}

TEST(StoreUnderAttack, RandomBytesAreClosedWithoutAWord) {
  const TcpStoreServer server(server_options());
  Rng rng(3);
  for (int i = 0; i < 200; ++i) {
    const Socket stranger = stranger_of(server);
    send_all(stranger, random_bytes(rng, kHelloBytes + static_cast<std::size_t>(i) * 7), soon());
    EXPECT_TRUE(is_closed_without_a_word(stranger));
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
  EXPECT_TRUE(is_closed_without_a_word(strangers.front())) << "the oldest make room";
}

// The ranks of a large job that all come at once are no strangers to make room for.
TEST(TcpStoreServer, LetsAsManyClientsKnockAtOnceAsAreExpected) {
  constexpr std::size_t kExpected = 100;
  TcpStoreServerOptions options = server_options();
  options.num_expected_clients = kExpected;
  const TcpStoreServer server(options);
  const Socket slow = stranger_of(server);
  std::vector<Socket> others;
  while (others.size() < kMaxStrangers + kExpected - 2) others.push_back(stranger_of(server));
  expect_serving(server);  // so it has seen them all
  ASSERT_EQ(send_all(slow, ClientHandshake(kToken, kStorePurpose).hello(), soon()), IoResult::done);
  Answer answer;
  EXPECT_EQ(receive_all(slow, answer, soon()), IoResult::done);
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
      EXPECT_FALSE(state.aborted);
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
