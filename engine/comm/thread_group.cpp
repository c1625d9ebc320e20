#include "engine/comm/thread_group.h"

#include <fmt/format.h>

#include <thread>
#include <utility>

#include "engine/comm/comm_errors.h"
#include "engine/comm/memory_group.h"
#include "engine/core/thread_context.h"
#include "engine/runtime/threads.h"
#include "engine/trace/observer.h"

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
    give_up(ErrorCode::State, "an exception that is not a std::exception");
  }
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_group(int world_size,
                                                             const ThreadGroupOptions& options) {
  require(world_size >= 1, ErrorCode::Usage, "make_thread_group",
          "a group has at least one rank, found {}", world_size);
  trace::Observer* const observer = trace::observer();
  const std::uint32_t observed_group =
      observer == nullptr ? 0 : observer->group_made({{}, world_size, 0});
  const runtime::Spin spin = spin_of_ranks(static_cast<std::size_t>(world_size),
                                           options.links ? LinkKind::modelled : LinkKind::real);
  std::vector<std::unique_ptr<Communicator>> group;
  for (std::unique_ptr<Group>& rank : make_thread_ranks(world_size, spin)) {
    group.push_back(
        make_plan_communicator(options.links ? options.links(std::move(rank)) : std::move(rank)));
    group.back()->set_timeout_seconds(options.timeout_seconds);
    group.back()->set_default_plan(options.default_plan);
    group.back()->set_observed_group(observed_group);
  }
  return group;
}

void run_ranks(int world_size, const std::function<void(Communicator&)>& fn,
               const ThreadGroupOptions& options) {
  auto group = make_thread_group(world_size, options);
  FirstFailure failure;
  std::vector<std::thread> threads;
  const std::vector<int> allowed = runtime::allowed_cores();
  try {
    for (std::size_t i = 0; i < group.size(); ++i) {
      threads.push_back(runtime::start_thread([&, i] {
        runtime::bind_to(runtime::part_of_cores(allowed, i, group.size()));
        run_rank(*std::exchange(group[i], nullptr), fn, failure);
      }));
    }
  } catch (const Error& error) {
    failure.set(error);
    // Those without a thread leave, so that nobody waits for them.
    for (std::size_t i = threads.size(); i < group.size(); ++i) group[i] = nullptr;
  }
  for (std::thread& thread : threads) thread.join();
  failure.throw_if_set();
}

}  // namespace lockstep::comm
