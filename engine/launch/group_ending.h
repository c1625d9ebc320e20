// How a group of ranks is brought to its end: politely, then by force. worker_group.h says what is
// promised.
#pragma once

#include <vector>

#include "engine/launch/worker.h"
#include "engine/runtime/wait.h"

namespace lockstep::launch {

// Sends the signals and keeps the time. The caller waits until deadline(), then calls
// act_on_deadline(); until all workers have a wait status.
class GroupEnding {
 public:
  // workers: of the group, read at each call.
  GroupEnding(const std::vector<Worker>& workers, double shutdown_seconds);

  // The group has been started again: all is well.
  void start_over();

  // A rank has failed. The others may find that out and say so themselves, then they are ended.
  void after_failure();

  // A signal to the launcher. All get it; but for SIGUSR1 and SIGUSR2 it ends the group, and a
  // second one, a fifth of a second later or more, does so at once.
  void pass_on(int signal);

  // When to call act_on_deadline: it does the next step, once its time has come.
  runtime::Deadline deadline() const { return deadline_; }
  void act_on_deadline();

  // Whether failures are still news: not once the launcher itself ends the ranks.
  bool is_by_ranks() const { return phase_ == Phase::running || phase_ == Phase::settling; }

  // The signal that ended the group; 0: none.
  int ended_by() const { return ended_by_; }
  // How many have ended or hastened it; SIGPIPE, which the launcher itself makes, does not count.
  int num_signals() const { return num_signals_; }

 private:
  // running: all is well, so far. settling: a rank has failed, the others may say so themselves.
  // terminating: they have got SIGTERM, or the user's signal. killing: SIGKILL to all that is left.
  enum class Phase { running, settling, terminating, killing };

  void enter(Phase phase, double seconds);
  void send_to_all(int signal) const;

  const std::vector<Worker>& workers_;
  const double shutdown_seconds_;
  Phase phase_ = Phase::running;
  runtime::Deadline deadline_;
  int ended_by_ = 0;
  int num_signals_ = 0;
  runtime::Clock::time_point ended_at_;
};

}  // namespace lockstep::launch
