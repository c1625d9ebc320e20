// Ranks that meet for tests, as threads with environments of their own.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/launch/rendezvous.h"

namespace lockstep::launch {

inline constexpr const char* kToken = "a token of this test";

inline int free_port() {
  return PortReservation(0, PortReservation::Scope::loopback).port();
}

// A rank by hand on this host.
inline Environment rank_by_hand(int rank, int world_size, int port) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(world_size)},
          {"MASTER_PORT", std::to_string(port)}};
}

// Joins with all environments at once. Ranks that joined stay until all have tried.
struct JoinResult {
  std::optional<RankEnvironment> rank;
  std::string error;
};
inline std::vector<JoinResult> join_all(const std::vector<Environment>& environments,
                                        const JoinOptions& options,
                                        const std::function<void(const Job&)>& work = {}) {
  std::vector<JoinResult> results(environments.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < environments.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        const Job job = join_job(environments[i], options);
        results[i].rank = job.rank();
        if (work) work(job);
      } catch (const std::exception& error) {
        results[i].error = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

inline void expect_all_joined(const std::vector<JoinResult>& results) {
  for (const JoinResult& result : results) EXPECT_EQ(result.error, "");
}

}  // namespace lockstep::launch
