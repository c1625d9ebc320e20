// The launcher: starts the ranks of one job on this host as processes and stays until the last of
// them has ended. `lockstep run` and tutorial 15 call it.
//
//   caller ── supervisor ─┬─ rank 0 ── whatever it starts
//                         ├─ rank 1
//                         └─ ...
//
// The supervisor starts the ranks, passes their output on, waits for the first failure and ends the
// others: they have one second to notice and report it in their own words; then they get SIGTERM
// twice (and SIGCONT, for stopped ones), and after shutdown_seconds SIGKILL. SIGINT, SIGTERM,
// SIGQUIT and (except under nohup) SIGHUP to the caller are passed on to all ranks once, which have
// shutdown_seconds to end what they are at and to write it; then comes SIGKILL. A second one, a
// fifth of a second later or more, kills at once. SIGUSR1 and SIGUSR2 are only passed on.
//
// No process is left behind, not even one that has left its session: caller and supervisor adopt
// orphans (process.h), so if one of the two is killed, the other one kills all processes below. If
// both are killed at once, the ranks still die (PR_SET_PDEATHSIG), but not the processes that they
// had started.
#pragma once

#include <string>
#include <vector>

#include "engine/launch/process.h"

namespace lockstep::launch {

// bind_to_cores: each rank gets a part of the cores, if there are at least as many as ranks
// (runtime/threads.h). none: every rank may run on all of them.
enum class Binding { none, bind_to_cores };

// A rank that has cores to itself finds LOCKSTEP_BIND_TO=core in its environment.
inline constexpr const char* kBindVariable = "LOCKSTEP_BIND_TO";

// Output streams of a rank, as a set: torchrun's 0, 1, 2, 3.
enum class Streams { none = 0, out = 1, err = 2, both = 3 };

// How a rank's lines look on the console: "[2] line", or as the rank wrote them.
enum class Lines { with_rank, plain };

struct LaunchOptions {
  std::vector<std::string> command;  // program and arguments; the program is looked up in PATH
  Environment environment;           // the ranks', without what identifies each rank
  int num_ranks = 1;                 // on this host
  int num_nodes = 1;
  int node_rank = 0;
  std::string master_address = "127.0.0.1";
  int master_port = 0;
  std::string token;  // LOCKSTEP_TOKEN, unless empty
  std::string run_id = "none";
  std::string role = "default";
  int max_restarts = 0;
  double shutdown_seconds = 30;  // torchrun's, too
  Binding binding = Binding::bind_to_cores;
  Lines lines = Lines::with_rank;

  // By local rank. redirects: to log files instead of the console; tee: to both.
  std::vector<Streams> redirects;
  std::vector<Streams> tee;
  std::string log_folder;           // holds those streams' logs; made if it is missing
  std::vector<int> console_filter;  // local ranks whose output is shown; empty: all
};

// Runs the ranks. The lines of rank r reach the caller's stdout and stderr as "[r] line" (or
// plain), each whole; the ranks' standard input is /dev/null. The first failure is one line on
// stderr: rank, exit code or signal, its last line on stderr, its log. If a rank's last line is a
// Lockstep program's error, it is not shown before that; other ranks' errors of that kind are only
// in their logs. If a log cannot be written (disk full), one line says so, and its rank's output
// goes to the console.
//
// Returns the exit code of the first failure, or 128 + signal if a signal ended that rank, or ended
// all; 0 if all ranks did their work.
// REQUIRES: no other thread and no child in this process.
// Throws Error{Usage} if the program cannot be found; Error{Io} if the log folder or the processes
// cannot be made.
int launch_ranks(const LaunchOptions& options);

// The environment of one rank: torchrun's variables, LOCAL_WORLD_SIZE, the token, OMP_NUM_THREADS=1
// if there are several ranks and it is unset, and LOCKSTEP_BIND_TO=core if the rank has cores to
// itself.
Environment environment_of_rank(const LaunchOptions& options, int local_rank, int restart_count);

// The cores that a rank is bound to; empty: it is not bound.
std::vector<int> cores_of_rank(const LaunchOptions& options, int local_rank);

// The file that logs stream 1 (out) or 2 (err) of a local rank:
// <log_folder>/attempt_<restart_count>/<local_rank>/stdout.log.
std::string log_path(const LaunchOptions& options, int restart_count, int local_rank, int stream);

}  // namespace lockstep::launch
