// Process groups whose ranks are threads of the test, so that many cases run quickly.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/process_group.h"
#include "engine/core/error.h"

namespace lockstep::comm {

using RankFunction = std::function<void(Communicator&)>;
// Changes the options of one rank.
using Adjust = std::function<void(ProcessGroupOptions&)>;

inline constexpr const char* kTestToken = "the token of this test";

inline ProcessGroupOptions group_options(int rank, int world_size, std::shared_ptr<Store> store) {
  ProcessGroupOptions options;
  options.rank = rank;
  options.world_size = world_size;
  options.store = std::move(store);
  options.token = kTestToken;
  options.timeout_seconds = 60;
  return options;
}

// As if every rank were on the host given for it.
inline Adjust on_hosts(std::vector<std::string> hosts) {
  return [hosts = std::move(hosts)](ProcessGroupOptions& options) {
    options.host = hosts[static_cast<std::size_t>(options.rank)];
  };
}

// One error per rank of a group of threads; empty if the rank returned.
inline std::vector<std::optional<Error>> errors_of_group_threads(
    int world_size, const RankFunction& fn, const Adjust& adjust = [](ProcessGroupOptions&) {}) {
  const auto store = std::make_shared<MemoryStore>();
  std::vector<std::optional<Error>> errors(static_cast<std::size_t>(world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        ProcessGroupOptions options = group_options(rank, world_size, store);
        adjust(options);
        fn(*make_process_group(options));
      } catch (const Error& error) {
        errors[static_cast<std::size_t>(rank)].emplace(error);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline void run_group_threads(
    int world_size, const RankFunction& fn, const Adjust& adjust = [](ProcessGroupOptions&) {}) {
  for (const auto& error : errors_of_group_threads(world_size, fn, adjust)) {
    if (error) throw Error(*error);
  }
}

}  // namespace lockstep::comm
