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
  // "port host"
  const std::string entry = store.get("transport/tcp/0/0", runtime::deadline_after(30));
  std::uint16_t port = 0;
  std::from_chars(entry.data(), entry.data() + entry.size(), port);
  std::vector<Socket> strangers;
  Rng rng(4);
  for (int i = 3; i < 300; ++i) {  // one says too little, the others nonsense
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

// A rank that listens there says so in the store.
std::string address_entry(const Socket& socket) {
  return fmt::format("{} 127.0.0.1", port_of(socket));
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
  store.set("transport/tcp/0/0", address_entry(ended));
  std::thread rank_0([&] {
    store.get("transport/tcp/0/1", runtime::deadline_after(30));
    store.abort(Error(ErrorCode::Comm, "store", "rank 0 ended"));
  });
  expect_error(ErrorCode::Comm, "rank 0 ended", [&] { TcpTransport(tcp_options(1, 2), store); });
  rank_0.join();
}

TEST(TcpMeeting, ARankThatDoesNotComeIsNamed) {
  MemoryStore store;
  TcpTransportOptions options = tcp_options(0, 3);
  options.timeout_seconds = 0.1;
  expect_error(ErrorCode::Timeout, "waited 0.1 s for the others to come, missing: rank 1, rank 2",
               [&] { TcpTransport(options, store); });
}

TEST(TcpMeeting, ARankThatDoesNotAnswerIsNamed) {
  const Socket ended = refusing_socket();
  MemoryStore store;
  store.set("transport/tcp/0/0", address_entry(ended));
  TcpTransportOptions options = tcp_options(1, 2);
  options.timeout_seconds = 0.2;
  expect_error(ErrorCode::Timeout, "rank 1 does not reach rank 0, which came but does not answer",
               [&] { TcpTransport(options, store); });
}

}  // namespace
}  // namespace lockstep::comm
