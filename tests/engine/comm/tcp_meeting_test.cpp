// How ranks connect to each other: among strangers, with a twin, in vain.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <charconv>

#include "engine/comm/store/hello.h"
#include "engine/core/rng.h"
#include "tests/engine/comm/tcp_ranks.h"
#include "tests/support/expect_error.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::expect_error;
using ::testing::HasSubstr;

TEST(TcpStrangers, AreTurnedAwayWhileRanksMeetAndAfterwards) {
  MemoryStore store;
  std::thread lower([&] {
    PlanCommunicator communicator(std::make_unique<TcpTransport>(tcp_options(0, 2), store));
    communicator.barrier();
    communicator.barrier();
  });
  // "port world_size nonce host"
  const std::string entry = store.get("transport/tcp/0/0", runtime::deadline_after(30));
  std::uint16_t port = 0;
  std::from_chars(entry.data(), entry.data() + entry.size(), port);
  std::vector<Socket> strangers;
  Rng rng(4);
  for (int i = 0; i < 300; ++i) {
    strangers.push_back(connect_to("127.0.0.1", port, runtime::deadline_after(30)));
    std::vector<std::byte> bytes(static_cast<std::size_t>(i));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.uniform() * 256);
    send_all(strangers.back(), bytes, runtime::deadline_after(30));
  }
  {
    PlanCommunicator communicator(std::make_unique<TcpTransport>(tcp_options(1, 2), store));
    communicator.barrier();
    for (const Socket& stranger : strangers) {
      std::array<std::byte, 1> answer;
      const IoResult end = receive_all(stranger, answer, runtime::deadline_after(30));
      EXPECT_TRUE(end == IoResult::closed || end == IoResult::reset);
    }
    communicator.barrier();
  }
  lower.join();
}

// Ranks 0, 1, 2 and 1 of three: one of the twins is refused, and the others meet.
TEST(TcpMeeting, ASecondProcessWithARankIsRefusedAndTheOthersMeet) {
  MemoryStore store;
  Errors errors(4);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        TcpTransport transport(tcp_options(i == 3 ? 1 : static_cast<int>(i), 3), store);
      } catch (const Error& error) {
        errors[i] = error;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(errors[0]);
  EXPECT_FALSE(errors[2]);
  ASSERT_NE(errors[1].has_value(), errors[3].has_value());
  EXPECT_THAT((errors[1] ? *errors[1] : *errors[3]).what(),
              HasSubstr("[connect] rank 1 is taken by a process at 127.0.0.1 port"));
  store.set("still", "here");  // nobody aborted the rendezvous
}

TEST(TcpMeeting, DifferentWorldSizesAreAnErrorOnAll) {
  MemoryStore store;
  Errors errors(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        TcpTransport transport(tcp_options(rank, 2 + rank), store);
      } catch (const Error& error) {
        errors[static_cast<std::size_t>(rank)] = error;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect_all(errors, ErrorCode::Comm,
             "rank 1 was started for 3 ranks, rank 0 for 2; all need the same WORLD_SIZE");
}

TEST(TcpMeeting, RanksThatDoNotComeAreNamed) {
  MemoryStore store;
  Errors errors(2);
  std::vector<std::thread> threads;
  for (const int rank : {0, 2}) {
    threads.emplace_back([&, rank] {
      TcpTransportOptions options = tcp_options(rank, 4);
      options.timeout_seconds = 0.2;
      try {
        TcpTransport transport(options, store);
      } catch (const Error& error) {
        errors[static_cast<std::size_t>(rank / 2)] = error;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), HasSubstr("waited 0.2 s for the others to come, missing: "));
    EXPECT_THAT(error->what(), HasSubstr("rank 1"));
    EXPECT_THAT(error->what(), HasSubstr("rank 3"));
  }
}

// What a rank that listens there says in the store.
std::string address_entry(const Socket& socket, int world_size) {
  return fmt::format("{} {} nonce 127.0.0.1", port_of(socket), world_size);
}

// Bound, but not listening: the port is taken, and connections to it are refused.
Socket refusing_socket() {
  Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::bind(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return socket;
}

// Rank 1 must hear of the abort long before its own time limit.
TEST(TcpMeeting, ARankThatEndedAfterItCameIsNotCalledUntilTheTimeLimit) {
  const Socket ended = refusing_socket();
  MemoryStore store;
  store.set("transport/tcp/0/0", address_entry(ended, 2));
  std::thread rank_0([&] {
    store.get("transport/tcp/0/1", runtime::deadline_after(30));
    store.abort(Error(ErrorCode::Comm, "store", "rank 0 ended"));
  });
  expect_error(ErrorCode::Comm, "rank 0 ended", [&] { TcpTransport(tcp_options(1, 2), store); });
  rank_0.join();
}

TEST(TcpMeeting, ARankThatDoesNotAnswerIsNamed) {
  const Socket ended = refusing_socket();
  MemoryStore store;
  store.set("transport/tcp/0/0", address_entry(ended, 2));
  TcpTransportOptions options = tcp_options(1, 2);
  options.timeout_seconds = 0.2;
  expect_error(ErrorCode::Timeout, "rank 1 does not reach rank 0, which came but does not answer",
               [&] { TcpTransport(options, store); });
}

}  // namespace
}  // namespace lockstep::comm
