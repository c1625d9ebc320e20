// A thread that watches how long another one has been inside a call that nothing can interrupt.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/comm/collective_call.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {

class MpiWatchdog {
 public:
  // on_expiry runs in the watching thread, once for a call that is not done in its time.
  explicit MpiWatchdog(std::function<void(const CallHeader&, double timeout_seconds)> on_expiry);
  ~MpiWatchdog();
  MpiWatchdog(const MpiWatchdog&) = delete;
  MpiWatchdog& operator=(const MpiWatchdog&) = delete;

  // Watches while it lives.
  class Scope {
   public:
    Scope(MpiWatchdog& watchdog, const CallHeader& call, double timeout_seconds);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    MpiWatchdog& watchdog_;
  };

 private:
  struct Watched {
    CallHeader call;
    double timeout_seconds = 0;
    runtime::Deadline deadline;
  };
  void main();

  std::function<void(const CallHeader&, double)> on_expiry_;
  std::mutex mutex_;
  std::condition_variable stops_;
  bool is_stopping_ = false;
  std::optional<Watched> watched_;
  std::thread thread_;
};

// Prints the error as one line and ends all ranks by MPI_Abort.
[[noreturn]] void end_job(const CallHeader& call, double timeout_seconds);

}  // namespace lockstep::comm
