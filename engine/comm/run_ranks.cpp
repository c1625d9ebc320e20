#include "engine/comm/run_ranks.h"

#include <fmt/format.h>

#include <thread>
#include <vector>

#include "engine/comm/comm_errors.h"
#include "engine/core/thread_context.h"
#include "engine/runtime/cpu_cores.h"

namespace lockstep::comm {
namespace {

void run_rank(Communicator& communicator, const std::function<void(Communicator&)>& fn,
              FirstFailure& failure) {
  ThreadContext context;
  context.rank = communicator.rank();
  context.world_size = communicator.world_size();
  context.group = communicator.observed_group();
  const ThreadContextScope scope(context);
  const auto give_up = [&](ErrorCode code, const char* message) {
    failure.set(Error(code, fmt::format("rank {}", communicator.rank()), message));
    communicator.abort(message);
  };
  try {
    fn(communicator);
  } catch (const Error& error) {
    give_up(error.code(), error.what());
  } catch (const std::exception& error) {
    give_up(ErrorCode::State, error.what());
  } catch (...) {
    give_up(ErrorCode::State, "an exception that is no std::exception");
  }
}

}  // namespace

void run_ranks(int world_size, const std::function<void(Communicator&)>& fn,
               const ThreadGroupOptions& options) {
  auto group = make_thread_group(world_size, options);
  FirstFailure failure;
  std::vector<std::thread> threads;
  const std::vector<int> allowed = runtime::allowed_cores();
  for (std::size_t i = 0; i < group.size(); ++i) {
    threads.emplace_back([&fn, &failure, cores = runtime::part_of_cores(allowed, i, group.size()),
                          mine = std::move(group[i])] {
      runtime::bind_to(cores);
      run_rank(*mine, fn, failure);
    });
  }
  for (std::thread& thread : threads) thread.join();
  failure.throw_if_set();
}

}  // namespace lockstep::comm
