#include <fmt/format.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <csignal>

#include "engine/comm/store/socket.h"
#include "engine/comm/store/tcp_store_client.h"
#include "engine/comm/store/tcp_store_server.h"
#include "engine/comm/transport/tcp/greeting.h"
#include "engine/core/rng.h"
#include "tests/engine/comm/abort_in_transfers.h"
#include "tests/engine/comm/comm_test_data.h"
#include "tests/engine/comm/tcp_ranks.h"
#include "tests/support/expect_error.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::expect_error;
using ::testing::HasSubstr;

using Errors = std::vector<std::optional<Error>>;

void expect_all(const Errors& errors, ErrorCode code, const std::string& words) {
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    ASSERT_TRUE(errors[rank]) << "rank " << rank;
    EXPECT_EQ(errors[rank]->code(), code) << errors[rank]->what();
    EXPECT_THAT(errors[rank]->what(), HasSubstr(words)) << "rank " << rank;
  }
}

TEST(TcpMismatch, IsNamedOnEveryRankBeforeDataMoves) {
  const Errors errors = errors_of_tcp_ranks(3, [](Communicator& communicator) {
    communicator.barrier();
    const std::size_t length = communicator.rank() == 2 ? 101 : 100;
    communicator.all_reduce(Tensor::zeros({length}));
  });
  expect_all(errors, ErrorCode::Comm,
             "rank 2 called all_reduce #1 of 101 float32 (sum) while rank 0 called all_reduce #1 "
             "of 100 float32 (sum)");
}

TEST(TcpMismatch, OfASendAndItsReceiveFailsBoth) {
  const Errors errors = errors_of_tcp_ranks(2, [](Communicator& communicator) {
    if (communicator.rank() == 0) communicator.send(Tensor::zeros({4}), 1);
    if (communicator.rank() == 1) communicator.recv(Tensor::zeros({5}), 0);
    communicator.barrier();
  });
  expect_all(errors, ErrorCode::Comm,
             "rank 1 called recv #0 of 5 float32 while rank 0 called send");
}

TEST(TcpTimeout, NamesTheMissingRanksWithTheirLastCallsOnEveryRank) {
  const Errors errors = errors_of_tcp_ranks(4, [](Communicator& communicator) {
    communicator.barrier();
    if (communicator.rank() == 2) communicator.recv(Tensor::zeros({1}), 0);
    communicator.set_timeout_seconds(0.1);
    communicator.all_reduce(Tensor::zeros({8}));
  });
  expect_all(errors, ErrorCode::Timeout,
             "in all_reduce #1 of 8 float32 (sum): rank 2 is missing (its last call: barrier #0)");
}

TEST(TcpTimeout, OfAPeerThatCalledButDoesNotGoOnNamesIt) {
  MemoryStore store;
  std::atomic<bool> is_over{false};
  std::thread stopped([&] {
    TcpTransport transport(tcp_options(1, 2), store);
    CallHeader call;
    call.operation = Operation::all_reduce;
    call.num_elements = 64;
    call.plan = plan::AllReducePlan::ring;
    transport.announce(call, 60);
    while (!is_over) std::this_thread::yield();
  });
  {
    PlanCommunicator communicator(std::make_unique<TcpTransport>(tcp_options(0, 2), store));
    communicator.set_timeout_seconds(0.1);
    CollectiveOptions options;
    options.plan = plan::AllReducePlan::ring;
    expect_error(ErrorCode::Timeout, "for rank 1, which has called it too but does not go on",
                 [&] { communicator.all_reduce(Tensor::zeros({64}), options); });
  }
  is_over = true;
  stopped.join();
}

TEST(TcpLeaving, ARankThatLeavesIsNamedByThoseThatNeedIt) {
  const Errors errors = errors_of_tcp_ranks(3, [](Communicator& communicator) {
    communicator.barrier();
    if (communicator.rank() == 1) return;
    communicator.barrier();
  });
  EXPECT_FALSE(errors[1]);
  for (const int rank : {0, 2}) {
    const auto& error = errors[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), HasSubstr("rank 1 left the group while rank"));
    EXPECT_THAT(error->what(), HasSubstr("waits for it in barrier #1"));
  }
}

TEST(TcpAbort, EndsEveryRankWithTheSameWords) {
  for (const plan::AllReducePlan plan : kPlans) {
    const Errors errors = errors_of_tcp_ranks(3, [&](Communicator& communicator) {
      all_reduce_until_rank_0_aborts(communicator, plan, 200'000, 10);
    });
    expect_all(errors, ErrorCode::Comm, "[abort] rank 0 aborted the group: enough");
  }
}

TEST(TcpAbort, ReachesARankThatIsNotWaiting) {
  std::atomic<bool> is_sending{false};
  std::atomic<bool> has_heard{false};
  const Errors errors = errors_of_tcp_ranks(2, [&](Communicator& communicator) {
    communicator.barrier();
    if (communicator.rank() == 0) {
      while (!is_sending) std::this_thread::yield();  // else rank 1 may hear it in the barrier
      communicator.abort("the loss is not finite");
      while (!has_heard) std::this_thread::yield();
      return;
    }
    is_sending = true;
    // Sends only: what says that the group has failed is its own thread.
    try {
      while (true) {
        communicator.send(Tensor::zeros({0}), 0);
        std::this_thread::yield();
      }
    } catch (const Error&) {
      has_heard = true;
      throw;
    }
  });
  ASSERT_TRUE(errors[1]);
  EXPECT_THAT(errors[1]->what(), HasSubstr("rank 0 aborted the group: the loss is not finite"));
}

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
      TcpStoreClient store({"127.0.0.1", port, "a token of this test", 30, {}, rank});
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

// A store in which something happens before or after a rank gets the address of another one.
class WatchedStore final : public Store {
 public:
  MemoryStore inner;
  std::function<void(std::string_view key)> before_get = [](std::string_view) {};
  std::function<void(std::string_view key)> after_get = [](std::string_view) {};

  std::string get(std::string_view key, runtime::Deadline deadline) override {
    before_get(key);
    std::string value = inner.get(key, deadline);
    after_get(key);
    return value;
  }
  void set(std::string_view key, std::string_view value) override { inner.set(key, value); }
  std::string set_if_absent(std::string_view key, std::string_view value) override {
    return inner.set_if_absent(key, value);
  }
  std::optional<std::string> try_get(std::string_view key) override { return inner.try_get(key); }
  std::int64_t add(std::string_view key, std::int64_t difference) override {
    return inner.add(key, difference);
  }
  void wait(std::span<const std::string> keys, runtime::Deadline deadline) override {
    inner.wait(keys, deadline);
  }
  bool erase(std::string_view key) override { return inner.erase(key); }
  std::size_t num_keys() override { return inner.num_keys(); }
  void abort(const Error& why) override { inner.abort(why); }
};

// What a rank that listens there says in the store.
std::string address_entry(const Socket& socket, int world_size) {
  return fmt::format("{} {} nonce 127.0.0.1", port_of(socket), world_size);
}

// Whoever accepts a connection waits a few seconds for its greeting, and a third rank may come
// later than that.
TEST(TcpMeeting, NobodyConnectsBeforeAllLowerRanksHaveCome) {
  const Socket rank_0 = listen_on("127.0.0.1", 0);
  WatchedStore store;
  store.set("transport/tcp/0/0", address_entry(rank_0, 3));
  store.before_get = [&](std::string_view key) {
    if (key != "transport/tcp/0/1") return;
    Socket connection;
    EXPECT_EQ(accept_from(rank_0, connection), AcceptResult::none);
    store.abort(Error(ErrorCode::Comm, "store", "that is all"));
  };
  expect_error(ErrorCode::Comm, "that is all", [&] { TcpTransport(tcp_options(2, 3), store); });
}

TEST(TcpMeeting, ARankThatEndedAfterItCameIsNotCalledUntilTheTimeLimit) {
  const Socket ended = listen_on("127.0.0.1", 0);
  shutdown(ended.descriptor(), SHUT_RDWR);  // keeps the port, and refuses connections
  WatchedStore store;
  store.set("transport/tcp/0/0", address_entry(ended, 2));
  store.after_get = [&](std::string_view) {
    store.abort(Error(ErrorCode::Comm, "store", "rank 0 ended"));
  };
  expect_error(ErrorCode::Comm, "rank 0 ended", [&] { TcpTransport(tcp_options(1, 2), store); });
}

TEST(TcpMeeting, ARankThatDoesNotAnswerIsNamed) {
  const Socket ended = listen_on("127.0.0.1", 0);
  shutdown(ended.descriptor(), SHUT_RDWR);
  MemoryStore store;
  store.set("transport/tcp/0/0", address_entry(ended, 2));
  TcpTransportOptions options = tcp_options(1, 2);
  options.timeout_seconds = 0.2;
  expect_error(ErrorCode::Timeout, "rank 1 does not reach rank 0, which came but does not answer",
               [&] { TcpTransport(options, store); });
}

Socket next_connection(const Socket& listener) {
  Socket connection;
  while (accept_from(listener, connection) != AcceptResult::accepted) {
    pollfd waiting{listener.descriptor(), POLLIN, 0};
    poll(&waiting, 1, -1);
  }
  return connection;
}

// As by a rank that strangers keep busy.
TEST(TcpMeeting, AConnectionThatIsCutIsMadeAgain) {
  const Socket rank_0 = listen_on("127.0.0.1", 0);
  MemoryStore store;
  store.set("transport/tcp/0/0", address_entry(rank_0, 2));
  std::thread lower([&] {
    for (int i = 0; i < 10; ++i) next_connection(rank_0).reset();
    const Socket connection = next_connection(rank_0);
    const TcpTransportOptions options = tcp_options(0, 2);
    Greeting greeting({options.token, options.group, 0, 2}, Greeting::Side::accepts);
    const auto soon = runtime::deadline_after(30);
    while (greeting.num_bytes_wanted() > 0) {
      std::vector<std::byte> bytes(greeting.num_bytes_wanted());
      ASSERT_EQ(receive_all(connection, bytes, soon), IoResult::done);
      greeting.receive(bytes);
      send_all(connection, greeting.take_output(), soon);
    }
    EXPECT_EQ(greeting.peer(), 1);
  });
  const TcpTransport transport(tcp_options(1, 2), store);
  lower.join();
}

TEST(TcpMeeting, AnotherTokenIsNoRankOfThisGroup) {
  MemoryStore store;
  Errors errors(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      TcpTransportOptions options = tcp_options(rank, 2);
      if (rank == 1) options.token = "another one, just as long";
      try {
        TcpTransport transport(options, store);
      } catch (const Error& error) {
        errors[static_cast<std::size_t>(rank)] = error;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect_all(errors, ErrorCode::Comm, "rank 0 closed its connection to rank 1 before they knew");
}

}  // namespace
}  // namespace lockstep::comm
