#include "engine/launch/launcher.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <initializer_list>
#include <optional>

#include "engine/core/error.h"
#include "engine/launch/process.h"
#include "engine/launch/supervisor.h"
#include "engine/runtime/cpu_cores.h"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;

// A signal so long after the first one is a second one. One key press can reach a process twice,
// from the terminal and from a program between them.
constexpr std::chrono::milliseconds kSecondSignalAfter{200};

// While it lives, this process blocks the signals that it waits for: those that are passed on, and
// SIGCHLD. SIGHUP only where it is not ignored (nohup: the program outlives its terminal).
class WaitedSignals {
 public:
  WaitedSignals() {
    sigemptyset(&set_);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) {
      sigaddset(&set_, number);
    }
    struct sigaction hang_up {};
    ::sigaction(SIGHUP, nullptr, &hang_up);
    if (hang_up.sa_handler == SIG_IGN) sigdelset(&set_, SIGHUP);
    ::sigprocmask(SIG_BLOCK, &set_, &before_);
    struct sigaction standard {};  // where SIGCHLD is ignored, no parent learns how a child ended
    standard.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &standard, &child_before_);
  }
  ~WaitedSignals() {
    ::sigaction(SIGCHLD, &child_before_, nullptr);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  WaitedSignals(const WaitedSignals&) = delete;
  WaitedSignals& operator=(const WaitedSignals&) = delete;

  const sigset_t& set() const { return set_; }

 private:
  sigset_t set_;
  sigset_t before_;
  struct sigaction child_before_ {};
};

int report(const char* message, int exit_code) {
  const std::string line = fmt::format("lockstep: {}\n", message);
  (void)!::write(STDERR_FILENO, line.data(), line.size());
  return exit_code;
}

// The life of the supervisor's process. It uses no stdio: its buffers belong to the caller.
[[noreturn]] void supervise(const LaunchOptions& options, const std::string& program,
                            const WaitedSignals& signals, pid_t caller) {
  ::setpgid(0, 0);  // signals of the terminal reach the caller alone, which passes them on once
  for (const int number : {SIGPIPE, SIGXFSZ, SIGTTOU}) ::signal(number, SIG_IGN);
  adopt_orphans(true);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != caller) ::_exit(128 + SIGKILL);  // it died before the line above
  int code = 1;
  try {
    const FileDescriptor events(::signalfd(-1, &signals.set(), SFD_CLOEXEC | SFD_NONBLOCK));
    code = Supervisor(options, program, events.descriptor(), caller).run();
  } catch (const Error& error) {
    code = report(error.what(), exit_code(error.code()));
  } catch (const std::exception& error) {
    code = report(error.what(), 1);
  }
  kill_descendants();
  ::_exit(code);
}

// Passes signals on to the supervisor until it ends; returns its wait status. Wakes it, in case it
// was stopped. A second signal that would end it kills all processes but `except`.
int wait_for(pid_t supervisor, const WaitedSignals& signals, const std::vector<pid_t>& except) {
  std::optional<Clock::time_point> first;
  for (;;) {
    int status = 0;
    if (::waitpid(supervisor, &status, WNOHANG) == supervisor) return status;
    const int signal = ::sigwaitinfo(&signals.set(), nullptr);
    if (signal <= 0 || signal == SIGCHLD) continue;
    ::kill(supervisor, signal);
    if (signal == SIGUSR1 || signal == SIGUSR2) continue;
    ::kill(supervisor, SIGCONT);
    const auto now = Clock::now();
    if (first && now - *first >= kSecondSignalAfter) {
      kill_descendants(except);
      return W_EXITCODE(128 + signal, 0);
    }
    if (!first) first = now;
  }
}

}  // namespace

int launch_ranks(const LaunchOptions& options) {
  require(!options.command.empty(), ErrorCode::Usage, "run", "there is no program to start");
  require(options.num_ranks >= 1, ErrorCode::Usage, "run", "expected at least 1 rank, found {}",
          options.num_ranks);
  const std::string program = find_program(options.command[0], options.environment);
  const std::vector<pid_t> own_children = find_descendants();
  const bool adopted_before = adopt_orphans(true);
  const WaitedSignals signals;
  const pid_t caller = ::getpid();
  const pid_t supervisor = ::fork();
  if (supervisor == 0) supervise(options, program, signals, caller);
  const int number = errno;
  int status = 0;
  if (supervisor > 0) status = wait_for(supervisor, signals, own_children);
  kill_descendants(own_children);  // there are some only when the supervisor was killed
  adopt_orphans(adopted_before);
  require(supervisor > 0, ErrorCode::Io, "run", "cannot make a process: {}", std::strerror(number));
  require(!WIFSIGNALED(status), ErrorCode::Comm, "run",
          "the process that looked after the ranks was killed by signal {}; all ranks were ended",
          WTERMSIG(status));
  return WEXITSTATUS(status);
}

Environment environment_of_rank(const LaunchOptions& options, int local_rank, int restart_count) {
  const std::string rank = std::to_string(options.node_rank * options.num_ranks + local_rank);
  const std::string world_size = std::to_string(options.num_nodes * options.num_ranks);
  Environment environment = options.environment;
  const auto set = [&](const char* name, const std::string& value) { environment[name] = value; };
  set("RANK", rank);
  set("WORLD_SIZE", world_size);
  set("LOCAL_RANK", std::to_string(local_rank));
  set("LOCAL_WORLD_SIZE", std::to_string(options.num_ranks));
  set("GROUP_RANK", std::to_string(options.node_rank));
  set("GROUP_WORLD_SIZE", std::to_string(options.num_nodes));
  set("ROLE_NAME", options.role);
  set("ROLE_RANK", rank);
  set("ROLE_WORLD_SIZE", world_size);
  set("MASTER_ADDR", options.master_address);
  set("MASTER_PORT", std::to_string(options.master_port));
  set("TORCHELASTIC_RUN_ID", options.run_id);
  set("TORCHELASTIC_RESTART_COUNT", std::to_string(restart_count));
  set("TORCHELASTIC_MAX_RESTARTS", std::to_string(options.max_restarts));
  // No agent listens on MASTER_PORT.
  set("TORCHELASTIC_USE_AGENT_STORE", "False");
  set("LOCKSTEP_LAUNCHER", "run");
  if (!options.token.empty()) set("LOCKSTEP_TOKEN", options.token);
  // An outer launcher's word about its own ranks does not hold for these.
  environment.erase(kBindVariable);
  environment.erase(kErrorFileVariable);
  if (!cores_of_rank(options, local_rank).empty()) set(kBindVariable, "core");
  if (options.num_ranks > 1 && !find_variable(environment, "OMP_NUM_THREADS")) {
    set("OMP_NUM_THREADS", "1");
  }
  return environment;
}

std::vector<int> cores_of_rank(const LaunchOptions& options, int local_rank) {
  if (options.binding == Binding::none) return {};
  return runtime::part_of_cores(runtime::allowed_cores(), static_cast<std::size_t>(local_rank),
                                static_cast<std::size_t>(options.num_ranks));
}

std::string log_path(const LaunchOptions& options, int restart_count, int local_rank, int stream) {
  return fmt::format("{}/attempt_{}/{}/{}.log", options.log_folder, restart_count, local_rank,
                     stream == 1 ? "stdout" : "stderr");
}

}  // namespace lockstep::launch
