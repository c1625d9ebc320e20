// What broke a group: the first error that anybody reports stays, whatever comes after it, so that
// all ranks name the same cause.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>

#include "engine/core/error.h"

namespace lockstep::comm {

// Any thread may use it. is_set() is sequentially consistent with the flags of a transport: who
// says that it will sleep and then looks here is either seen by set()'s caller, or sees the error.
class FirstFailure {
 public:
  // Says whether this error is the first.
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
