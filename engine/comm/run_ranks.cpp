#include "engine/comm/run_ranks.h"

#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "engine/core/error.h"
#include "engine/core/thread_context.h"

namespace lockstep::comm {
namespace {

// Keeps the error of the rank that failed first.
class FirstError {
 public:
  void add(int rank, ErrorCode code, const char* message) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_.emplace(code, "rank " + std::to_string(rank), message);
  }
  void rethrow() const {
    if (error_) throw Error(*error_);
  }

 private:
  std::mutex mutex_;
  std::optional<Error> error_;
};

void run_rank(Communicator& communicator, const std::function<void(Communicator&)>& fn,
              FirstError& first_error) {
  ThreadContext context;
  context.rank = communicator.rank();
  context.world_size = communicator.world_size();
  const ThreadContextScope scope(context);
  const auto give_up = [&](ErrorCode code, const char* message) {
    first_error.add(communicator.rank(), code, message);
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
  FirstError first_error;
  std::vector<std::thread> threads;
  for (std::unique_ptr<Communicator>& communicator : group) {
    threads.emplace_back(
        [&fn, &first_error, mine = std::move(communicator)] { run_rank(*mine, fn, first_error); });
  }
  for (std::thread& thread : threads) thread.join();
  first_error.rethrow();
}

}  // namespace lockstep::comm
