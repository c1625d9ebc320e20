// The process that looks after the ranks of one host. launcher.h says what it promises.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/core/files.h"
#include "engine/launch/output.h"
#include "engine/runtime/wait.h"

namespace lockstep::launch {

class Supervisor {
 public:
  // program: the path of options.command[0]. signals: a signalfd of the signals that the caller
  // passes on and SIGCHLD, all of which this process blocks. caller: this process's parent.
  // Throws Error{Io}.
  Supervisor(const LaunchOptions& options, std::string program, int signals, pid_t caller);

  // Runs the ranks, with their restarts, until their output is written. Returns the exit code. Does
  // not return when the caller died: then it kills all processes below and exits.
  // Throws Error{Io} when processes or logs cannot be made; the caller kills those that were.
  int run();

 private:
  // running: no failure so far. settling: a rank has failed, the others may say so themselves.
  // terminating: they have got SIGTERM, or the user's signal. killing: SIGKILL to all that is left.
  enum class Phase { running, settling, terminating, killing };

  void run_once(int restart_count);
  void start_all(int restart_count);
  void read_what_is_left();
  int exit_code() const;

  void wait_for_events();
  void read_signals();
  void reap();

  void watch_end(RankProcess& rank);
  void note_ends();
  void note_end(RankProcess& rank);

  void end_by(int signal);
  void act_on_deadline();
  void enter(Phase phase, double seconds);
  void send_to_all(int signal) const;

  const LaunchOptions& options_;
  const std::string program_;
  const int signals_;
  const pid_t caller_;
  FileDescriptor end_events_;  // epoll, which keeps the order of events
  RankOutput output_;
  std::vector<RankProcess> ranks_;
  int num_ended_ = 0;
  RankProcess* first_failure_ = nullptr;
  int ended_by_ = 0;  // the signal that ended the ranks; 0: none
  Phase phase_ = Phase::running;
  runtime::Deadline deadline_;  // of the phase
};

// "[run] rank 1 failed first: exit code 7; its last error line: ...; its log: ...".
std::string describe_failure(const RankProcess& rank);

// "SIGTERM"; "signal 40" for one without a name.
std::string signal_name(int signal);

}  // namespace lockstep::launch
