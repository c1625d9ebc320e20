// TCP alone, beside process_group_test.cpp: how ranks connect, full sockets, who is late, IPv6.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <charconv>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "engine/comm/plan_communicator.h"
#include "engine/comm/store/hello.h"
#include "engine/comm/store/store.h"
#include "engine/comm/tcp_group.h"
#include "engine/core/rng.h"
#include "tests/engine/comm/comm_test_data.h"
#include "tests/support/expect_error.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::expect_error;
using ::testing::HasSubstr;

ProcessGroupOptions tcp_options(int rank, int world_size, const std::shared_ptr<Store>& store) {
  ProcessGroupOptions options;
  options.rank = rank;
  options.world_size = world_size;
  options.token = "a token of this test";
  options.store = store;
  return options;
}

std::unique_ptr<TcpTransport> tcp_transport(const ProcessGroupOptions& options) {
  std::vector<int> peers;
  for (int rank = 0; rank < options.world_size; ++rank) {
    if (rank != options.rank) peers.push_back(rank);
  }
  return std::make_unique<TcpTransport>(options, peers, peers.size() + 1);
}

// One error per rank; empty if the rank had none.
using Errors = std::vector<std::optional<Error>>;

using TcpRank = std::function<void(Communicator&)>;

// The errors of each rank's fn, or of its joining of the group; empty if it returned.
Errors errors_of_tcp_ranks(int world_size, const TcpRank& fn, double timeout_seconds = 60) {
  const auto store = std::make_shared<MemoryStore>();
  Errors errors(static_cast<std::size_t>(world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        PlanCommunicator communicator(tcp_transport(tcp_options(rank, world_size, store)));
        communicator.set_timeout_seconds(timeout_seconds);
        fn(communicator);
      } catch (const Error& error) {
        errors[static_cast<std::size_t>(rank)] = error;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// Every rank must return.
void run_tcp_ranks(int world_size, const TcpRank& fn) {
  const Errors errors = errors_of_tcp_ranks(world_size, fn);
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    EXPECT_FALSE(errors[rank]) << "rank " << rank << ": " << errors[rank]->what();
  }
}

// More than sockets hold, on every pair and in both directions at once.
TEST(TcpLarge, BuffersOfManyPiecesPassWithoutBlockingEachOther) {
  constexpr std::size_t kNumElements = 4'000'037;
  run_tcp_ranks(3, [](Communicator& communicator) {
    for (const plan::AllReducePlan plan : kPlans) {
      const Tensor buffer = Tensor::empty({kNumElements}, DType::int32);
      const std::span<std::int32_t> values = buffer.host<std::int32_t>();
      std::iota(values.begin(), values.end(), communicator.rank());
      CollectiveOptions options;
      options.plan = plan;
      communicator.all_reduce(buffer, options);
      std::size_t num_wrong = 0;
      for (std::size_t i = 0; i < kNumElements; ++i) {
        if (values[i] != static_cast<std::int32_t>(3 * i + 3)) ++num_wrong;
      }
      EXPECT_EQ(num_wrong, 0U) << what_case(plan, 3, kNumElements);
    }
  });
}

TEST(TcpStrangers, AreTurnedAwayWhileRanksMeetAndAfterwards) {
  const auto store = std::make_shared<MemoryStore>();
  std::thread lower([&] {
    PlanCommunicator communicator(tcp_transport(tcp_options(0, 2, store)));
    communicator.barrier();
    communicator.barrier();
  });
  // "port host"
  const std::string entry = store->get("transport/tcp/0/0", runtime::deadline_after(30));
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
    PlanCommunicator communicator(tcp_transport(tcp_options(1, 2, store)));
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
  const auto store = std::make_shared<MemoryStore>();
  store->set("transport/tcp/0/0", address_entry(ended));
  std::thread rank_0([&] {
    store->get("transport/tcp/0/1", runtime::deadline_after(30));
    store->abort(Error(ErrorCode::Comm, "store", "rank 0 ended"));
  });
  expect_error(ErrorCode::Comm, "rank 0 ended", [&] { tcp_transport(tcp_options(1, 2, store)); });
  rank_0.join();
}

TEST(TcpMeeting, ARankThatDoesNotAnswerIsNamed) {
  const Socket ended = refusing_socket();
  const auto store = std::make_shared<MemoryStore>();
  store->set("transport/tcp/0/0", address_entry(ended));
  ProcessGroupOptions options = tcp_options(1, 2, store);
  options.timeout_seconds = 0.2;
  expect_error(ErrorCode::Timeout, "rank 1 cannot reach rank 0, which came but does not answer",
               [&] { tcp_transport(options); });
}

}  // namespace
}  // namespace lockstep::comm
