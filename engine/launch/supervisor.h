// The process that looks after the ranks of one host. See worker_group.h for what it promises.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "engine/launch/console.h"
#include "engine/launch/worker_group.h"
#include "engine/launch/worker_process.h"

namespace lockstep::launch {

class Supervisor {
 public:
  // program: what options.command[0] was found to be. keeper: a pipe whose other end the keeper
  // holds, so it closes when the keeper dies. signals: a signalfd of kSupervisedSignals and
  // SIGCHLD, all of which this process blocks.
  Supervisor(const WorkerGroupOptions& options, std::string program, int keeper, int signals);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Runs the group, with its restarts, until its output is written. Returns the exit code. Does not
  // return when the keeper died: then it kills everything below and exits.
  int run();

 private:
  using Clock = std::chrono::steady_clock;

  // running: all is well, so far. settling: a rank has failed, the others may say so themselves.
  // terminating: they have got SIGTERM, or the user's signal. killing: SIGKILL to all that is left.
  enum class Phase { running, settling, terminating, killing };

  void start_all(int restart_count);
  void open_logs(Worker& worker, int restart_count);
  void run_until_all_ended();
  void wait_for_events(Clock::time_point until);
  void read_signals();
  void pass_on(int signal);
  void reap();
  void note_ends();
  void note_failures(const std::vector<Worker*>& ended);
  void act_on_deadline();
  void enter(Phase phase, double seconds);
  void send_to_all(int signal);

  void read_stream(Worker& worker, int number);
  void close_stream(Worker& worker, int number);
  void print_line(Worker& worker, int number, std::string_view line);
  void write_console();
  void flush_console();
  void say(std::string_view message);
  std::string describe_failure(const Worker& worker) const;
  int exit_code() const;
  [[noreturn]] void end_with_keeper();

  const WorkerGroupOptions& options_;
  const std::string program_;
  const int keeper_;
  const int signals_;
  const int ends_;  // an epoll descriptor: in which order the ranks' stderr is closed
  std::size_t num_ends_ = 0;
  Console console_;
  std::vector<Worker> workers_;
  Phase phase_ = Phase::running;
  Clock::time_point deadline_ = Clock::time_point::max();
  Worker* first_failure_ = nullptr;
  int passed_signal_ = 0;  // that ended the group
  Clock::time_point passed_signal_at_;
  bool console_failed_ = false;
};

}  // namespace lockstep::launch
