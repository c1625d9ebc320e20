// Ranks over TCP as processes: they end together, are killed, or are stopped.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "engine/comm/store/socket.h"
#include "engine/comm/store/tcp_store.h"
#include "tests/engine/comm/comm_test_data.h"
#include "tests/engine/comm/tcp_ranks.h"

namespace lockstep::comm {
namespace {

using ::testing::HasSubstr;

class Pipe {
 public:
  Pipe() {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) throw std::runtime_error("no pipe");
    from = Socket(ends[0]);
    to = Socket(ends[1]);
  }
  // All that was written, once the last writer has ended.
  std::string read_all() {
    to.close();
    std::string text;
    std::array<char, 256> buffer;
    while (true) {
      const ssize_t size = read(from.descriptor(), buffer.data(), buffer.size());
      if (size <= 0) return text;
      text.append(buffer.data(), static_cast<std::size_t>(size));
    }
  }
  void write_all(std::string_view text) const {
    const ssize_t size = write(to.descriptor(), text.data(), text.size());
    EXPECT_EQ(size, static_cast<ssize_t>(text.size()));
  }
  Socket from, to;
};

// Ranks as processes that share a store over TCP. `words` are those of each rank's error; "done"
// where there was none, "" where the rank was killed. awaited: ranks that end by themselves; the
// others are killed when these have.
std::vector<std::string> words_of_processes(int world_size, const std::vector<int>& awaited,
                                            const TcpRank& fn, bool (*comes)(int) = nullptr) {
  std::vector<Pipe> ports(static_cast<std::size_t>(world_size));
  std::vector<Pipe> results(ports.size());
  std::vector<pid_t> children;
  for (std::size_t r = 0; r < ports.size(); ++r) {
    children.push_back(fork());  // before this process has threads
    if (children.back() != 0) continue;
    for (Pipe& port : ports) port.to.close();
    for (std::size_t other = 0; other < ports.size(); ++other) {
      if (other != r) results[other].to.close();
    }
    const auto rank = static_cast<int>(r);
    try {
      const auto port = static_cast<std::uint16_t>(std::stoi(ports[r].read_all()));
      TcpStoreClient store({"127.0.0.1", port, "a token of this test", 30, 10, rank});
      if (comes != nullptr && !comes(rank)) raise(SIGKILL);
      PlanCommunicator communicator(
          std::make_unique<TcpTransport>(tcp_options(rank, world_size), store));
      fn(communicator);
      results[r].write_all("done");
    } catch (const Error& error) {
      results[r].write_all(error.what());
    }
    _exit(0);
  }
  const TcpStoreServer server({"127.0.0.1", 0, "a token of this test"});
  for (const Pipe& port : ports) {
    port.write_all(std::to_string(server.port()));
  }
  for (Pipe& port : ports) port.to.close();
  for (Pipe& result : results) result.to.close();
  std::vector<std::string> words(ports.size());
  for (const int rank : awaited) {
    words[static_cast<std::size_t>(rank)] = results[static_cast<std::size_t>(rank)].read_all();
  }
  for (const pid_t child : children) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  return words;
}

TEST(TcpProcesses, TrainTogetherAndEnd) {
  const auto words = words_of_processes(3, {0, 1, 2}, [](Communicator& communicator) {
    const Tensor buffer = Tensor::full({100'000}, communicator.rank());
    for (int i = 0; i < 10; ++i) communicator.all_reduce(buffer);
    require(buffer.host<float>()[99'999] == 3.0F * 19683, ErrorCode::Numeric, "test", "wrong sum");
  });
  EXPECT_THAT(words, ::testing::Each("done"));
}

TEST(TcpProcesses, AKilledRankIsNamedByAllOthersAtOnce) {
  for (const plan::AllReducePlan plan : kPlans) {
    const auto words = words_of_processes(4, {0, 1, 3}, [&](Communicator& communicator) {
      CollectiveOptions options;
      options.plan = plan;
      for (int call = 0;; ++call) {
        if (communicator.rank() == 2 && call == 7) raise(SIGKILL);
        communicator.all_reduce(Tensor::zeros({100'000}), options);
      }
    });
    for (const std::size_t rank : {0, 1, 3}) {
      EXPECT_THAT(words[rank], HasSubstr("rank 2 is lost: its connection closed"));
    }
  }
}

TEST(TcpProcesses, AStoppedRankIsNamedByAllOthersAfterTheTimeLimit) {
  const auto words = words_of_processes(3, {0, 1}, [](Communicator& communicator) {
    communicator.set_timeout_seconds(0.2);
    for (int call = 0;; ++call) {
      if (communicator.rank() == 2 && call == 5) raise(SIGSTOP);
      communicator.all_reduce(Tensor::zeros({100'000}));
    }
  });
  for (const std::size_t rank : {0, 1}) {
    EXPECT_THAT(words[rank],
                HasSubstr("in all_reduce #5 of 100000 float32 (sum): rank 2 is missing "
                          "(its last call: all_reduce #4 of 100000 float32 (sum))"));
  }
}

TEST(TcpProcesses, ARankKilledBeforeItConnectedIsNamedAtOnce) {
  const auto words = words_of_processes(
      3, {0, 2}, [](Communicator& communicator) { communicator.barrier(); },
      [](int rank) { return rank != 1; });
  for (const std::size_t rank : {0, 2}) {
    EXPECT_THAT(words[rank], HasSubstr("rank 1 ended without leaving: it was killed"));
  }
}

}  // namespace
}  // namespace lockstep::comm
