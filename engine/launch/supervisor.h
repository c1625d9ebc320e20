// The process that looks after the ranks of one host. See worker_group.h for what it promises.
#pragma once

#include <string>
#include <vector>

#include "engine/launch/end_order.h"
#include "engine/launch/group_ending.h"
#include "engine/launch/group_output.h"
#include "engine/launch/worker.h"
#include "engine/launch/worker_group.h"

namespace lockstep::launch {

class Supervisor {
 public:
  // program: what options.command[0] was found to be. keeper: a pipe whose other end the keeper
  // holds, so it closes when the keeper dies. signals: a signalfd of those that the keeper passes
  // on and SIGCHLD, all of which this process blocks (supervised_signals.h).
  Supervisor(const WorkerGroupOptions& options, std::string program, int keeper, int signals);

  // Runs the group, with its restarts, until its output is written. Returns the exit code. Does not
  // return when the keeper died: then it kills everything below and exits.
  // Throws Error{Io} when processes or logs cannot be made; the caller kills those that were.
  int run();

 private:
  void run_once(int restart_count);
  void start_all(int restart_count);
  void read_what_is_left();
  void flush_console();
  void show_other_errors();
  int exit_code() const;

  // What to wait for beside signals and the console.
  enum class Reading { ranks, nothing };
  void wait_for_events(runtime::Deadline until, Reading reading);
  void read_signals();
  void reap();
  void write_console();
  [[noreturn]] void end_with_keeper();

  const WorkerGroupOptions& options_;
  const std::string program_;
  const int keeper_;
  const int signals_;
  GroupOutput output_;
  std::vector<Worker> workers_;
  EndOrder end_order_;
  GroupEnding ending_;
  Worker* first_failure_ = nullptr;
};

}  // namespace lockstep::launch
