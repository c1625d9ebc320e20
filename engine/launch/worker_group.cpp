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
#include "engine/launch/supervisor.h"

namespace lockstep::launch {
namespace {

constexpr int kSupervisedSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD};

// Blocks the signals that keeper and supervisor wait for, and puts everything back.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigemptyset(&set_);
    for (const int number : kSupervisedSignals) sigaddset(&set_, number);
    // nohup: this program outlives its terminal.
    struct sigaction hang_up {};
    ::sigaction(SIGHUP, nullptr, &hang_up);
    if (hang_up.sa_handler == SIG_IGN) sigdelset(&set_, SIGHUP);
    ::sigprocmask(SIG_BLOCK, &set_, &before_);
    // Where SIGCHLD is ignored, nobody learns how a child ended.
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &standard, &child_before_);
  }
  ~BlockedSignals() {
    ::sigaction(SIGCHLD, &child_before_, nullptr);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  const sigset_t* get() const { return &set_; }

 private:
  sigset_t set_;
  sigset_t before_;
  struct sigaction child_before_ {};
};

// Two pipes' and two logs' descriptors for each rank.
void allow_many_files(int num_workers) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t wanted = 64 + 4 * static_cast<rlim_t>(num_workers);
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
                            int keeper, const BlockedSignals& signals) {
  int code = 1;
  try {
    // Signals of the terminal reach the keeper alone, which passes them on once.
    ::setpgid(0, 0);
    for (const int number : {SIGPIPE, SIGXFSZ, SIGTTOU}) ::signal(number, SIG_IGN);
    adopt_orphans(true);
    allow_many_files(options.num_workers);
    const int signal_descriptor = ::signalfd(-1, signals.get(), SFD_CLOEXEC | SFD_NONBLOCK);
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
int keep(pid_t supervisor, const BlockedSignals& signals) {
  for (;;) {
    int status = 0;
    if (::waitpid(supervisor, &status, WNOHANG) == supervisor) return status;
    const int signal = ::sigwaitinfo(signals.get(), nullptr);
    if (signal > 0 && signal != SIGCHLD) ::kill(supervisor, signal);
  }
}

}  // namespace

int run_worker_group(const WorkerGroupOptions& options) {
  require(!options.command.empty(), ErrorCode::Usage, "run", "there is no program to start");
  require(options.num_workers >= 1, ErrorCode::Usage, "run", "expected at least 1 rank, found {}",
          options.num_workers);
  const std::string program = find_program(options.command[0], options.environment);
  int ends[2];
  require(::pipe2(ends, O_CLOEXEC) == 0, ErrorCode::Io, "run", "cannot make a pipe: {}",
          std::strerror(errno));
  const std::vector<pid_t> own_children = find_descendants();
  const bool adopted_before = adopt_orphans(true);
  const BlockedSignals signals;
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
