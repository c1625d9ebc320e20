// The process's one use of the MPI library, and the time limit of its calls.
#pragma once

#include <mpi.h>

#include <atomic>
#include <mutex>
#include <string>

#include "engine/comm/collective_call.h"
#include "engine/comm/mpi/mpi_group.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {

// Throws Error{Comm}: "[MPI_Allreduce] failed: ..." in MPI's own words.
[[noreturn]] void fail_mpi_call(const char* call, int result);

inline void check_mpi(int result, const char* call) {
  if (result != MPI_SUCCESS) [[unlikely]] {
    fail_mpi_call(call, result);
  }
}

// MPI_CHECK(MPI_Barrier(communicator));
#define MPI_CHECK(call) ::lockstep::comm::check_mpi((call), #call)

// Ends the process with exit code 1 when the scope is not left in time: nothing can interrupt a
// call into MPI. A thread of the process watches, and first prints one line that names what is
// waited for.
class MpiTimeLimit {
 public:
  // For a call; for something else, "MPI_Init" for example.
  MpiTimeLimit(const CollectiveCall& call, int rank);
  MpiTimeLimit(const char* name, int rank, double seconds);
  ~MpiTimeLimit();
  MpiTimeLimit(const MpiTimeLimit&) = delete;
  MpiTimeLimit& operator=(const MpiTimeLimit&) = delete;

  bool has_passed() const { return runtime::has_passed(deadline_); }
  std::string error_line() const;

 private:
  const CollectiveCall* call_ = nullptr;
  const char* name_ = nullptr;
  int rank_;
  double seconds_;
  runtime::Deadline deadline_;
};

class MpiSession {
 public:
  // Starts MPI at the first call, unless the program has started it already. Throws Error{Comm}
  // when MPI does not start, is over already, or serves one thread only.
  static MpiSession& get(const MpiGroupOptions& options);

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  const std::string& library() const { return library_; }  // "Open MPI v4.1.4"

  // Held around every call into MPI. Locks nothing where the library serves several threads at
  // once.
  std::unique_lock<std::mutex> enter() {
    return serves_threads_ ? std::unique_lock<std::mutex>() : std::unique_lock(mutex_);
  }

  // From now on MPI is not finished at exit: that would wait for ranks that cannot come.
  void give_up() { has_given_up_ = true; }

 private:
  explicit MpiSession(const MpiGroupOptions& options);
  static void finish();

  int rank_ = 0;
  int world_size_ = 0;
  std::string library_;
  bool serves_threads_ = false;
  std::mutex mutex_;
  static inline std::atomic<bool> has_given_up_{false};
};

}  // namespace lockstep::comm
