#include "engine/comm/mpi/mpi_watchdog.h"

#include <fmt/format.h>
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "engine/comm/comm_errors.h"

namespace lockstep::comm {
namespace {

// A call begins and ends without waking the thread, which looks this often.
constexpr std::chrono::milliseconds kInterval{100};

}  // namespace

MpiWatchdog::MpiWatchdog(std::function<void(const CallHeader&, double)> on_expiry)
    : on_expiry_(std::move(on_expiry)), thread_([this] { main(); }) {}

MpiWatchdog::~MpiWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  stops_.notify_all();
  thread_.join();
}

void MpiWatchdog::main() {
  std::unique_lock lock(mutex_);
  while (!stops_.wait_for(lock, kInterval, [&] { return is_stopping_; })) {
    if (!watched_ || !runtime::has_passed(watched_->deadline)) continue;
    const Watched expired = *watched_;
    watched_.reset();
    lock.unlock();
    on_expiry_(expired.call, expired.timeout_seconds);
    lock.lock();
  }
}

MpiWatchdog::Scope::Scope(MpiWatchdog& watchdog, const CallHeader& call, double timeout_seconds)
    : watchdog_(watchdog) {
  const std::lock_guard lock(watchdog_.mutex_);
  watchdog_.watched_ = {call, timeout_seconds, runtime::deadline_after(timeout_seconds)};
}

MpiWatchdog::Scope::~Scope() {
  const std::lock_guard lock(watchdog_.mutex_);
  watchdog_.watched_.reset();
}

void end_job(const CallHeader& call, double timeout_seconds) {
  const Error error(ErrorCode::Timeout, name_of(call.operation),
                    not_done(call, timeout_seconds) +
                        ": all ranks had come to it, and then one of them stood "
                        "still; MPI cannot give the call up, so the job ends");
  fmt::print(stderr, "{}\n", error.what());
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, exit_code(error.code()));
  std::abort();
}

}  // namespace lockstep::comm
