#include "engine/launch/worker_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/core/error.h"
#include "engine/launch/descendants.h"
#include "engine/launch/error_file.h"
#include "engine/launch/supervised_signals.h"
#include "engine/launch/supervisor.h"
#include "engine/launch/worker_process.h"

namespace lockstep::launch {
namespace {

// Two pipes', two logs' and the process's descriptors for each rank.
void allow_many_files(int num_workers) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t wanted = 64 + 5 * static_cast<rlim_t>(num_workers);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void write_error(std::string_view message) {
  std::string line = fmt::format("lockstep: {}\n", message);
  (void)!::write(STDERR_FILENO, line.data(), line.size());
}

// What the supervisor's process does. It uses no stdio: its buffers belong to the caller.
[[noreturn]] void supervise(const WorkerGroupOptions& options, const std::string& program,
                            int keeper, const SupervisedSignals& signals) {
  int code = 1;
  try {
    // Signals of the terminal reach the keeper alone, which passes them on once.
    ::setpgid(0, 0);
    for (const int number : {SIGPIPE, SIGXFSZ, SIGTTOU}) ::signal(number, SIG_IGN);
    adopt_orphans(true);
    allow_many_files(options.num_workers);
    const int signal_descriptor = ::signalfd(-1, &signals.set(), SFD_CLOEXEC | SFD_NONBLOCK);
    require(signal_descriptor >= 0, ErrorCode::Io, "run", "cannot wait for signals: {}",
            std::strerror(errno));
    code = Supervisor(options, program, keeper, signal_descriptor).run();
  } catch (const Error& error) {
    write_error(error.what());
    code = lockstep::exit_code(error.code());
  } catch (const std::exception& error) {
    write_error(error.what());
  }
  kill_descendants();
  ::_exit(code);
}

// Passes signals on to the supervisor until it ends; returns its wait status.
int keep(pid_t supervisor, const SupervisedSignals& signals) {
  for (;;) {
    int status = 0;
    if (::waitpid(supervisor, &status, WNOHANG) == supervisor) return status;
    const int signal = ::sigwaitinfo(&signals.set(), nullptr);
    if (signal > 0 && signal != SIGCHLD) ::kill(supervisor, signal);
  }
}

}  // namespace

int run_worker_group(const WorkerGroupOptions& asked) {
  const ErrorFolder errors;
  WorkerGroupOptions options = asked;
  if (options.error_folder.empty()) options.error_folder = errors.path();
  require(!options.command.empty(), ErrorCode::Usage, "run", "there is no program to start");
  require(options.num_workers >= 1, ErrorCode::Usage, "run", "expected at least 1 rank, found {}",
          options.num_workers);
  const std::string program = find_program(options.command[0], options.environment);
  int ends[2];
  require(::pipe2(ends, O_CLOEXEC) == 0, ErrorCode::Io, "run", "cannot make a pipe: {}",
          std::strerror(errno));
  const std::vector<pid_t> own_children = find_descendants();
  const bool adopted_before = adopt_orphans(true);
  const SupervisedSignals signals;
  const pid_t supervisor = ::fork();
  if (supervisor == 0) {
    ::close(ends[1]);
    supervise(options, program, ends[0], signals);
  }
  const int number = errno;
  ::close(ends[0]);
  int status = 0;
  if (supervisor > 0) status = keep(supervisor, signals);
  kill_descendants(own_children);
  adopt_orphans(adopted_before);
  ::close(ends[1]);
  require(supervisor > 0, ErrorCode::Io, "run", "cannot make a process: {}", std::strerror(number));
  require(!WIFSIGNALED(status), ErrorCode::Comm, "run",
          "the process that looked after the ranks was killed by signal {}; all ranks were ended",
          WTERMSIG(status));
  return WEXITSTATUS(status);
}

}  // namespace lockstep::launch
