#include "engine/comm/mpi/mpi_session.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/core/error.h"

namespace lockstep::comm {
namespace {

// A call begins and ends without waking the thread, which looks this often.
constexpr std::chrono::milliseconds kLookInterval{100};

// The time limits that hold now.
struct TimeLimits {
  std::mutex mutex;
  std::vector<const MpiTimeLimit*> active;

  TimeLimits() {
    std::thread([this] { watch(); }).detach();
  }

  [[noreturn]] void watch() {
    for (;;) {
      std::this_thread::sleep_for(kLookInterval);
      const std::lock_guard lock(mutex);
      for (const MpiTimeLimit* limit : active) {
        if (limit->has_passed()) end_process(*limit);
      }
    }
  }

  [[noreturn]] static void end_process(const MpiTimeLimit& limit) {
    std::fflush(stdout);
    fmt::print(stderr, "{}\n", limit.error_line());
    std::fflush(stderr);
    std::_Exit(exit_code(ErrorCode::Timeout));  // MPI is in use, so nothing can be cleaned up
  }
};

TimeLimits& time_limits() {
  static TimeLimits& limits = *new TimeLimits;  // its thread runs until the process ends
  return limits;
}

void add_limit(const MpiTimeLimit* limit) {
  TimeLimits& limits = time_limits();
  const std::lock_guard lock(limits.mutex);
  limits.active.push_back(limit);
}

// The first part of "Open MPI v4.1.4, package: ..." or "MPICH Version:\t4.1\n...".
std::string short_name(std::string_view text) {
  std::string name;
  for (const char c : text.substr(0, text.find_first_of(",\n"))) name += c == '\t' ? ' ' : c;
  return name;
}

}  // namespace

void fail_mpi_call(const char* call, int result) {
  const std::string_view text(call);
  std::array<char, MPI_MAX_ERROR_STRING> words{};
  int length = 0;
  MPI_Error_string(result, words.data(), &length);
  fail(ErrorCode::Comm, text.substr(0, text.find('(')), "failed: {}", words.data());
}

MpiTimeLimit::MpiTimeLimit(const CollectiveCall& call, int rank)
    : call_(&call),
      rank_(rank),
      seconds_(call.timeout_seconds),
      deadline_(runtime::deadline_after(seconds_)) {
  add_limit(this);
}

MpiTimeLimit::MpiTimeLimit(const char* name, int rank, double seconds)
    : name_(name), rank_(rank), seconds_(seconds), deadline_(runtime::deadline_after(seconds)) {
  add_limit(this);
}

MpiTimeLimit::~MpiTimeLimit() {
  TimeLimits& limits = time_limits();
  const std::lock_guard lock(limits.mutex);
  std::erase(limits.active, this);
}

std::string MpiTimeLimit::error_line() const {
  if (call_ != nullptr && call_->header.operation == Operation::recv) {
    return fmt::format("[recv] rank {} waited {} s in {} for a message that rank {} has not sent",
                       rank_, seconds_, to_string(call_->header), call_->peer);
  }
  return fmt::format(
      "[{}] rank {} waited {} s in {} for the other ranks: one of them has ended, stands still, or "
      "did not call it; MPI cannot give up a call, so this process ends",
      call_ == nullptr ? "mpi" : name_of(call_->header.operation), rank_, seconds_,
      call_ == nullptr ? name_ : to_string(call_->header));
}

MpiSession& MpiSession::get(const MpiGroupOptions& options) {
  static MpiSession& session = *new MpiSession(options);  // never destroyed: finish() runs at exit
  return session;
}

MpiSession::MpiSession(const MpiGroupOptions& options) {
  int is_initialized = 0;
  int is_finalized = 0;
  MPI_CHECK(MPI_Initialized(&is_initialized));
  MPI_CHECK(MPI_Finalized(&is_finalized));
  require(is_finalized == 0, ErrorCode::Comm, "mpi", "MPI was finished already in this process");
  int level = MPI_THREAD_SINGLE;
  if (is_initialized == 0) {
    const MpiTimeLimit limit("MPI_Init", options.rank, options.timeout_seconds);
    MPI_CHECK(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level));
    std::atexit(finish);
  } else {
    MPI_CHECK(MPI_Query_thread(&level));
  }
  require(level >= MPI_THREAD_SERIALIZED, ErrorCode::Comm, "mpi",
          "needs an MPI library that serves several threads (MPI_THREAD_SERIALIZED), found level "
          "{} of it; use another library, or --comm own",
          level);
  serves_threads_ = level >= MPI_THREAD_MULTIPLE;
  MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
  MPI_CHECK(MPI_Comm_size(MPI_COMM_WORLD, &world_size_));
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
  int length = 0;
  MPI_CHECK(MPI_Get_library_version(version.data(), &length));
  library_ = short_name(version.data());
}

// Without a time limit: another rank may still be at work on its own.
void MpiSession::finish() {
  if (!has_given_up_) MPI_Finalize();
}

}  // namespace lockstep::comm
