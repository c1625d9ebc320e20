// Ranks over TCP for tests: threads of this process, each with sockets of its own over the
// loopback, as processes have them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/plan_communicator.h"
#include "engine/comm/store/store.h"
#include "engine/comm/tcp_group.h"

namespace lockstep::comm {

inline TcpTransportOptions tcp_options(int rank, int world_size) {
  TcpTransportOptions options;
  options.rank = rank;
  options.world_size = world_size;
  options.token = "a token of this test";
  return options;
}

// Of each rank; empty where there was none.
using Errors = std::vector<std::optional<Error>>;

// Every rank has such an error.
inline void expect_all(const Errors& errors, ErrorCode code, const std::string& words) {
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    ASSERT_TRUE(errors[rank]) << "rank " << rank;
    EXPECT_EQ(errors[rank]->code(), code) << errors[rank]->what();
    EXPECT_THAT(errors[rank]->what(), ::testing::HasSubstr(words)) << "rank " << rank;
  }
}

using TcpRank = std::function<void(Communicator&)>;

// What each rank's fn, or its joining of the group, threw; empty where it returned.
inline Errors errors_of_tcp_ranks(int world_size, const TcpRank& fn, double timeout_seconds = 60) {
  MemoryStore store;
  Errors errors(static_cast<std::size_t>(world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        PlanCommunicator communicator(
            std::make_unique<TcpTransport>(tcp_options(rank, world_size), store));
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
inline void run_tcp_ranks(int world_size, const TcpRank& fn) {
  const Errors errors = errors_of_tcp_ranks(world_size, fn);
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    EXPECT_FALSE(errors[rank]) << "rank " << rank << ": " << errors[rank]->what();
  }
}

}  // namespace lockstep::comm
