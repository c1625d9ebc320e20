// Jobs that start and run while strangers open connections to their port by the thousand.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <random>
#include <thread>

#include "engine/comm/store/tcp_store.h"
#include "tests/hostile/rounds.h"
#include "tests/tools/rank_variables.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;
using Clock = std::chrono::steady_clock;

constexpr int kNumThreads = 2;
constexpr std::size_t kMostOpen = 200;  // each thread's open connections

Bytes noise(std::mt19937_64& random, std::size_t num_bytes) {
  Bytes bytes(num_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Nothing, a hello of another job, whole or cut short, or noise. (store_test.cpp says the
// rest.)
Bytes next_words(std::mt19937_64& random) {
  const std::string hello =
      comm::encode(comm::to_message({comm::kStorePurpose, "the token of another job"}));
  const auto bytes = std::as_bytes(std::span(hello));
  switch (random() % 4) {
    case 0:
      return {};
    case 1:
      return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(random() % bytes.size())};
    case 2:
      return {bytes.begin(), bytes.end()};
    default:
      return noise(random, random() % 5000);
  }
}

// None when nobody listens.
comm::Socket connect_at_once(std::uint16_t port) {
  try {
    return comm::connect_to("127.0.0.1", port, runtime::deadline_after(0.001));
  } catch (const Error&) {
    return {};
  }
}

constexpr std::size_t kConnectionsPerSecond = 12'000;
constexpr std::size_t kConnectionsPerRound = 3'400;

// From now on until it is destroyed, strangers connect to 127.0.0.1, whether or not anybody
// listens, and keep the last few hundred connections open.
class Crowd {
 public:
  Crowd(const std::string& port, std::uint64_t seed) {
    for (int i = 0; i < kNumThreads; ++i) {
      const std::uint64_t own_seed = seed * kNumThreads + static_cast<std::uint64_t>(i);
      threads_.emplace_back([=, this, port = static_cast<std::uint16_t>(std::stoi(port))] {
        attack(port, own_seed);
      });
    }
  }
  ~Crowd() {
    is_over_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  // Connections that somebody took, up to now.
  std::size_t num_connections() const { return num_connections_; }

 private:
  void attack(std::uint16_t port, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::deque<comm::Socket> open;
    constexpr std::chrono::nanoseconds kPause(1'000'000'000 * kNumThreads / kConnectionsPerSecond);
    for (auto next = Clock::now(); !is_over_; next += kPause) {
      std::this_thread::sleep_until(next);
      comm::Socket connection = connect_at_once(port);
      if (!connection.is_open()) {
        next = Clock::now();
        continue;
      }
      ++num_connections_;
      comm::send_all(connection, next_words(random), Clock::now());
      open.push_back(std::move(connection));
      if (open.size() <= kMostOpen) continue;
      open.front().reset();  // one that is only closed would hold its port for a minute
      open.pop_front();
    }
    for (comm::Socket& connection : open) connection.reset();
  }

  std::atomic<bool> is_over_{false};
  std::atomic<std::size_t> num_connections_{0};
  std::vector<std::thread> threads_;
};

// Starts a job of three ranks at this port; says whether it did what it should.
void expect_to_meet(const std::string& port) {
  MarkedProgram job(words(std::string(LOCKSTEP_PROGRAM) + " run --nproc-per-node 3 --master-port " +
                          port + " -- " + MEET_RANKS + " 60"));
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_THAT(outcome.out,
                HasSubstr(fmt::format("rank {} of 3, local rank {} of 3, sum 3", rank, rank)));
  }
}

TEST(Strangers, KeepNoJobFromStarting) {
  const std::string port = free_port();
  const Crowd crowd(port, 1);
  for (Rounds round(2); round.go_on() && !HasFailure(); round.next()) {
    const std::size_t enough = crowd.num_connections() + kConnectionsPerRound;
    do {
      expect_to_meet(port);
    } while (crowd.num_connections() < enough);
  }
}

// A job that trains has the weights that it has undisturbed.
TEST(Strangers, DisturbNoJobThatRuns) {
  const auto train = [](const std::string& port) {
    const std::string work = "train --parallel ddp --bitwise --batch 61 --steps 26 --transport tcp";
    MarkedProgram job(words(std::string(LOCKSTEP_PROGRAM) +
                            " run --nproc-per-node 2 --master-port " + port + " -- " +
                            LOCKSTEP_PROGRAM + " " + work));
    const Outcome outcome = job.wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return weights_digest(outcome.out);
  };
  const std::string undisturbed = train(free_port());
  const std::string port = free_port();
  const Crowd crowd(port, 2);
  do {
    EXPECT_EQ(train(port), undisturbed);
  } while (crowd.num_connections() <= 100);
}

}  // namespace
}  // namespace lockstep::testing
