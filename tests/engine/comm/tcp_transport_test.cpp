// How ranks connect over TCP. What they send then: process_group_test.cpp.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <thread>
#include <vector>

#include "engine/comm/process_transports.h"
#include "engine/core/rng.h"
#include "tests/engine/comm/process_ranks.h"
#include "tests/support/expect_error.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::expect_error;
// One of two ranks.
std::unique_ptr<Transport> tcp_rank(int rank, const std::shared_ptr<Store>& store,
                                    double timeout_seconds = 60) {
  ProcessGroupOptions options = group_options(rank, 2, store);
  options.timeout_seconds = timeout_seconds;
  return tcp_transport(options, {1 - rank}, 2);
}

TEST(TcpStrangers, AreTurnedAwayWhileRanksMeetAndAfterwards) {
  const auto store = std::make_shared<MemoryStore>();
  std::thread lower([&] {
    const auto communicator = make_plan_communicator(tcp_rank(0, store));
    communicator->barrier();
    communicator->barrier();
  });
  // "port host"
  const std::string entry = store->get("transport/tcp/0/0", runtime::deadline_after(30));
  const auto port = static_cast<std::uint16_t>(std::stoi(entry));
  std::vector<Socket> strangers;
  Rng rng(4);
  for (int i = 3; i < 300; ++i) {  // one says too little, the others nonsense
    strangers.push_back(connect_to("127.0.0.1", port, runtime::deadline_after(30)));
    std::vector<std::byte> bytes(static_cast<std::size_t>(i));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.uniform() * 256);
    send_all(strangers.back(), bytes, runtime::deadline_after(30));
  }
  {
    const auto communicator = make_plan_communicator(tcp_rank(1, store));
    communicator->barrier();
    for (const Socket& stranger : strangers) {
      std::array<std::byte, 1> answer;
      const IoResult end = receive_all(stranger, answer, runtime::deadline_after(30));
      EXPECT_TRUE(end == IoResult::closed || end == IoResult::reset);
    }
    communicator->barrier();
  }
  lower.join();
}

// A store in which rank 0 says that it listens where connections are refused: the port is taken,
// but no process listens.
class RefusedRank0 {
 public:
  RefusedRank0() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(socket_.descriptor(), reinterpret_cast<sockaddr*>(&address), sizeof address),
              0);
    store->set("transport/tcp/0/0", fmt::format("{} 127.0.0.1", port_of(socket_)));
  }
  const std::shared_ptr<Store> store = std::make_shared<MemoryStore>();

 private:
  Socket socket_;
};

// Rank 1 must hear of the abort long before its own time limit.
TEST(TcpMeeting, ARankThatEndedAfterItCameIsNotCalledUntilTheTimeLimit) {
  const RefusedRank0 refused;
  std::thread rank_0([&] {
    refused.store->get("transport/tcp/0/1", runtime::deadline_after(30));
    refused.store->abort(Error(ErrorCode::Comm, "store", "rank 0 ended"));
  });
  expect_error(ErrorCode::Comm, "rank 0 ended", [&] { tcp_rank(1, refused.store); });
  rank_0.join();
}

TEST(TcpMeeting, ARankThatDoesNotAnswerIsNamed) {
  const RefusedRank0 refused;
  expect_error(ErrorCode::Timeout, "rank 1 cannot reach rank 0, which came but does not answer",
               [&] { tcp_rank(1, refused.store, 0.2); });
}

}  // namespace
}  // namespace lockstep::comm
