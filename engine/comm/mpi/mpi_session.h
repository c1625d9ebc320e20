// The process's one use of the MPI library: started once, finished when the process exits.
#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

namespace lockstep::comm {

// Throws Error{Comm}: "[MPI_Iallreduce] failed: ..." in MPI's own words.
[[noreturn]] void fail_mpi_call(const char* call, int result);

inline void check_mpi(int result, const char* call) {
  if (result != MPI_SUCCESS) [[unlikely]] {
    fail_mpi_call(call, result);
  }
}

// MPI_CHECK(MPI_Test(&request, &is_done, MPI_STATUS_IGNORE));
#define MPI_CHECK(call) ::lockstep::comm::check_mpi((call), #call)

class MpiSession {
 public:
  // Starts MPI at the first call, unless somebody else has. Throws Error{Comm} when it does not
  // start, is over already, or serves one thread only.
  static MpiSession& get();

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  const std::string& library() const { return library_; }  // "Open MPI v4.1.4"

  // Held around every call into MPI.
  std::mutex& mutex() { return mutex_; }

  // From now on MPI is not finished at exit: that would wait for ranks that cannot come.
  void give_up() { has_given_up_ = true; }

  // Keeps alive for ever what an operation that was given up may still write to.
  static void keep(std::shared_ptr<void> memory);

 private:
  MpiSession();
  static void finish();

  int rank_ = 0;
  int world_size_ = 0;
  std::string library_;
  std::mutex mutex_;
  std::atomic<bool> has_given_up_{false};
};

}  // namespace lockstep::comm
