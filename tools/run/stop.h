// Ends a training early, after the same step on every rank, when a signal comes
// (run/interruption.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <optional>

#include "engine/comm/communicator.h"

namespace lockstep::tools {

class Stop {
 public:
  virtual ~Stop() = default;
  // Every rank asks before each of its steps but the first, which it trains in any case. True: the
  // run ends before this step, on all ranks.
  virtual bool is_before(std::size_t step) = 0;
  // The signal that ends the run, the same on all ranks; 0: none has come.
  virtual int signal() const = 0;
};

// Shared by all ranks of a run that are threads. A rank may have begun a step, in which the others
// must take part, when another one learns of the signal: the run ends after it. Costs a lock a
// step.
class StopOfThreads final : public Stop {
 public:
  bool is_before(std::size_t step) override;
  int signal() const override;

 private:
  std::mutex mutex_;
  std::size_t next_ = 0;  // no rank has begun this step
  std::optional<std::size_t> end_;
};

// One rank that is a process. Signals reach processes at different times, or only one of them. So
// the ranks tell each other from time to time, in an all-reduce of three numbers after as many
// steps as take a tenth of a second.
class StopOfProcesses final : public Stop {
 public:
  // The communicator must outlive it. Every rank makes one.
  explicit StopOfProcesses(comm::Communicator& communicator);

  bool is_before(std::size_t step) override;
  int signal() const override { return signal_; }

 private:
  using Clock = std::chrono::steady_clock;

  comm::Communicator& communicator_;
  Clock::time_point asked_ = Clock::now();  // when the ranks told each other
  std::size_t num_steps_ = 1;               // between such times
  std::size_t next_ = 0;
  int signal_ = 0;
};

}  // namespace lockstep::tools
