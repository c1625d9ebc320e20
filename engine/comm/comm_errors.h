// How ranks fail: errors about a rank that others wait for in vain, and the first failure of a
// group, which all of its ranks report.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "engine/comm/collective_call.h"
#include "engine/core/error.h"

namespace lockstep::comm {

// A rank that waits for another one in a call. Each method makes the error for one end of the wait.
struct RankWait {
  int rank = 0;
  int peer = 0;
  CallHeader call;
  double timeout_seconds = 0;

  // Timeout: "rank 0 waited 2 s in all_reduce #7 of 100 float32 (sum)" and then
  //   ": rank 2 is missing (...)"          missing: who has not called it (describe_missing)
  //   " for rank 1, which has called it too but does not go on"          missing: ""
  //   " for a message that rank 1 has not sent"                          of a recv
  Error late(std::string_view missing) const;
  //   " for a message of rank 1 that is still on its way over the simulated link (50us,1GB/s)"
  Error late_over(std::string_view link) const;

  // Comm: "rank 1 left the group while rank 0 waits for it in ...".
  Error left() const;
  // Comm: "rank 1 (process 4711) died while rank 0 waits for it in ...".
  Error died(int process) const;
};

// Comm: "[abort] rank 3 aborted the group: ...".
Error aborted_by(int rank, std::string_view why);
// True for such an error, whose cause is another rank.
bool is_abort(const std::exception& error);

// A rank's own error in a call, as the others hear it: "[all_reduce] rank 1 failed in all_reduce #7
// of 100 float32 (sum): [storage] ...".
Error failed_in(const CallHeader& call, int rank, const Error& error);

// "rank 2 is missing (its last call: barrier #6)".
std::string missing_rank(int rank, const CallHeader& last_call);

// Adds to "rank 1 is missing, rank 2 is missing".
void add_to_list(std::string& list, std::string_view item);

// --- errors that travel between processes, through the store or over a transport
// An error as bytes: its code, its operation up to a zero, the message, cut off if it does not fit.
std::string encode(const Error& error, std::size_t max_bytes);
// Bytes that are not an error become an Error{Comm} that says so.
Error decode_error(std::string_view bytes);

// The first error that breaks a group. Later ones are dropped, so that all ranks name one cause.
// Any thread may use it. is_set() is sequentially consistent: if a thread announces that it will
// sleep and then looks here, either set()'s caller sees the thread, or the thread sees the error.
class FirstFailure {
 public:
  // Returns true if this error is the first.
  bool set(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (error_) return false;
    error_.emplace(error);
    is_set_.store(true, std::memory_order_seq_cst);
    return true;
  }
  bool is_set() const { return is_set_.load(std::memory_order_seq_cst); }
  // REQUIRES: is_set().
  Error error() const {
    const std::lock_guard lock(mutex_);
    return *error_;
  }
  void throw_if_set() const {
    if (is_set()) [[unlikely]] {
      throw error();
    }
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Error> error_;
  std::atomic<bool> is_set_{false};
};

}  // namespace lockstep::comm
