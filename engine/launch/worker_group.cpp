#include "engine/launch/worker_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>

#include "engine/core/error.h"
#include "engine/launch/descendants.h"
#include "engine/launch/error_file.h"
#include "engine/launch/supervised_signals.h"
#include "engine/launch/supervisor.h"
#include "engine/launch/worker_process.h"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;

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

// Of the processes below: signals of the terminal reach the launcher alone, which passes them on
// once.
void leave_terminal() {
  ::setpgid(0, 0);
  for (const int number : {SIGPIPE, SIGXFSZ, SIGTTOU}) ::signal(number, SIG_IGN);
  adopt_orphans(true);
}

// What the supervisor's process does. It uses no stdio: its buffers belong to the caller.
[[noreturn]] void supervise(const WorkerGroupOptions& options, const std::string& program,
                            int keeper, const SupervisedSignals& signals) {
  int code = 1;
  try {
    leave_terminal();
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

// Passes signals on to the process that it looks after until that ends; returns its wait status.
// That process is woken, in case somebody has stopped it. If a second signal does not move it
// either, everything below but `except` is killed, and the status is as if it had ended by the
// first one.
int keep(pid_t process, const SupervisedSignals& signals, const std::vector<pid_t>& except = {}) {
  constexpr std::chrono::seconds kPatience{1};
  constexpr timespec kLookAgainAfter{0, 100'000'000};
  std::optional<Clock::time_point> first;
  std::optional<Clock::time_point> second;
  int first_signal = 0;
  for (;;) {
    if (second && Clock::now() - *second >= kPatience) kill_descendants(except);
    int status = 0;
    const pid_t ended = ::waitpid(process, &status, WNOHANG);
    if (ended == process) return status;
    if (ended < 0) return W_EXITCODE(128 + first_signal, 0);  // kill_descendants() has reaped it
    const int signal = second ? ::sigtimedwait(&signals.set(), nullptr, &kLookAgainAfter)
                              : ::sigwaitinfo(&signals.set(), nullptr);
    if (signal <= 0 || signal == SIGCHLD) continue;
    ::kill(process, signal);
    if (signal == SIGUSR1 || signal == SIGUSR2) continue;
    ::kill(process, SIGCONT);
    if (!first) {
      first = Clock::now();
      first_signal = signal;
    } else if (!second && Clock::now() - *first >= kSecondSignalAfter) {
      second = Clock::now();
    }
  }
}

// What the guard's process does: it stands between launcher and supervisor, so that one of the
// three is left to end all others when two are killed at once.
[[noreturn]] void guard(WorkerGroupOptions options, const std::string& program, int keeper,
                        const SupervisedSignals& signals, const ErrorFolder& errors,
                        pid_t launcher) {
  leave_terminal();
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (options.error_folder.empty() && errors.make()) options.error_folder = errors.path();
  const pid_t supervisor = ::fork();
  if (supervisor == 0) supervise(options, program, keeper, signals);
  if (supervisor < 0) {
    write_error(fmt::format("[run] cannot make a process: {}", std::strerror(errno)));
    ::_exit(1);
  }
  if (::getppid() != launcher) ::raise(SIGTERM);  // it died before the line above
  const int status = keep(supervisor, signals);
  kill_descendants();
  remove_error_folder(errors.path());
  if (WIFSIGNALED(status)) {
    ::signal(WTERMSIG(status), SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::raise(WTERMSIG(status));
  }
  ::_exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

}  // namespace

int run_worker_group(const WorkerGroupOptions& options) {
  require(!options.command.empty(), ErrorCode::Usage, "run", "there is no program to start");
  require(options.num_workers >= 1, ErrorCode::Usage, "run", "expected at least 1 rank, found {}",
          options.num_workers);
  const std::string program = find_program(options.command[0], options.environment);
  int ends[2];
  const int result = ::pipe2(ends, O_CLOEXEC);
  require(result == 0, ErrorCode::Io, "run", "cannot make a pipe: {}", std::strerror(errno));
  const std::vector<pid_t> own_children = find_descendants();
  const bool adopted_before = adopt_orphans(true);
  const SupervisedSignals signals;
  const ErrorFolder errors;  // goes before a signal that came late ends this process
  const pid_t launcher = ::getpid();
  const pid_t guarding = ::fork();
  if (guarding == 0) {
    ::close(ends[1]);
    guard(options, program, ends[0], signals, errors, launcher);
  }
  const int number = errno;
  ::close(ends[0]);
  int status = 0;
  if (guarding > 0) status = keep(guarding, signals, own_children);
  // First, since a supervisor that has lost its guard would do it, but not after the next line; a
  // signal may end this process between the two.
  remove_error_folder(errors.path());
  kill_descendants(own_children);
  adopt_orphans(adopted_before);
  ::close(ends[1]);
  require(guarding > 0, ErrorCode::Io, "run", "cannot make a process: {}", std::strerror(number));
  require(!WIFSIGNALED(status), ErrorCode::Comm, "run",
          "the process that looked after the ranks was killed by signal {}; all ranks were ended",
          WTERMSIG(status));
  return WEXITSTATUS(status);
}

}  // namespace lockstep::launch
