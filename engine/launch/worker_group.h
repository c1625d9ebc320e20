// A worker group: the ranks of one job on this host, as processes, from their start to the end of
// the last of them. What `lockstep run` does.
//
//   caller (keeper) ── guard ── supervisor ─┬─ rank 0 ── whatever it starts
//                                           ├─ rank 1
//                                           └─ ...
//
// The supervisor starts the ranks, passes their output on, waits for the first failure and ends the
// others. Keeper, guard and supervisor look after each other: each adopts orphans (descendants.h),
// so whichever dies, or whichever two at once, one that is left kills every process below, also
// grandchildren that have left their session. And the ranks themselves ask the kernel to die with
// the supervisor. The bound: who kills all three at once leaves what the ranks had started, and the
// folder for their errors.
//
// The end of a group. When a rank fails, the others have one second to find that out and to say so
// in their own words; then SIGTERM (and SIGCONT, for stopped ones), after shutdown_seconds SIGKILL.
// SIGINT, SIGTERM, SIGQUIT and (but not under nohup) SIGHUP to the caller are passed on to all
// ranks and end the group in the same way; a second one, a fifth of a second later or more, kills
// at once. A supervisor that somebody has stopped is woken by them.
// SIGUSR1 and SIGUSR2 are only passed on.
#pragma once

#include <string>
#include <vector>

#include "engine/launch/environment.h"

namespace lockstep::launch {

// bind_to_cores: to a part of the cores, where there are at least as many as ranks
// (runtime/cpu_cores.h). none: every rank may run on all of them.
enum class Binding { none, bind_to_cores };

// What a rank finds in its environment when it has cores to itself: LOCKSTEP_BIND_TO=core.
inline constexpr const char* kBindVariable = "LOCKSTEP_BIND_TO";

// Output streams of a rank, as a set: torchrun's 0, 1, 2, 3.
enum class Streams { none = 0, out = 1, err = 2, both = 3 };

// How a rank's lines look on the console: "[2] line", or as the rank wrote them.
enum class Lines { with_rank, plain };

struct WorkerGroupOptions {
  std::vector<std::string> command;  // program and arguments; the program is looked up in PATH
  Environment environment;           // the ranks' environment, but for what says who they are
  int num_workers = 1;               // ranks on this host
  int num_nodes = 1;
  int node_rank = 0;
  std::string master_address = "127.0.0.1";
  int master_port = 0;
  std::string token;         // LOCKSTEP_TOKEN, unless empty
  std::string error_folder;  // where ranks write why they end (error_file.h), unless empty
  std::string run_id = "none";
  std::string role = "default";
  int max_restarts = 0;
  double shutdown_seconds = 10;
  Binding binding = Binding::bind_to_cores;
  Lines lines = Lines::with_rank;

  // By local rank. redirects: to log files instead of the console; tee: to both.
  std::vector<Streams> redirects;
  std::vector<Streams> tee;
  std::string log_folder;           // where the streams above are logged; made when missing
  std::vector<int> console_filter;  // local ranks whose output is shown; empty: all
};

// Runs the group. The lines of rank r reach the caller's stdout and stderr as "[r] line" (or
// plain), each whole; standard input of the ranks is /dev/null. The first failure is one line on
// stderr: rank, exit code or signal, its last line on stderr, its error file's
// message where that says something else, its log. A rank's last line that is the message of its
// error file is said there alone, and what the other ranks say of the same failure is in their logs
// alone. When a log cannot be written
// (disk full), one line says so, the ranks go on, and what would have gone there goes to the
// console. Returns the exit code of the first failure, 128 + signal when a signal ended that rank,
// or ended the group; 0 when all ranks did their work. REQUIRES: no other thread in this process.
// Throws Error{Usage} when the program cannot be found; Error{Io} when the log folder or the
// processes cannot be made.
int run_worker_group(const WorkerGroupOptions& options);

// Where a rank is asked to write why it ends; "": nowhere.
std::string error_file_path(const WorkerGroupOptions& options, int restart_count, int local_rank);

// The environment of one rank: torchrun's variables, LOCAL_WORLD_SIZE, the token,
// OMP_NUM_THREADS=1 where there are several ranks and it is unset, and LOCKSTEP_BIND_TO=core where
// the rank has cores to itself.
Environment worker_environment(const WorkerGroupOptions& options, int local_rank,
                               int restart_count);

// The cores that a rank is bound to; empty: it is not.
std::vector<int> cores_of_worker(const WorkerGroupOptions& options, int local_rank);

// Where stream 1 (out) or 2 (err) of a local rank is logged:
// <log_folder>/attempt_<restart_count>/<local_rank>/stdout.log.
std::string log_path(const WorkerGroupOptions& options, int restart_count, int local_rank,
                     int stream);

}  // namespace lockstep::launch
