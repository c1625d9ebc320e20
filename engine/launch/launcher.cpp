// Starts the ranks of one host, the supervisor that looks after them, and waits for it as its
// caller. launcher.h states the contract.
#include "engine/launch/launcher.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "engine/launch/output.h"
#include "engine/launch/process.h"
#include "engine/launch/rank_environment.h"
#include "engine/runtime/threads.h"
#include "engine/runtime/wait.h"

namespace lockstep::launch {

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
  // No torchrun agent listens on MASTER_PORT.
  set("TORCHELASTIC_USE_AGENT_STORE", "False");
  set("LOCKSTEP_LAUNCHER", "run");
  if (!options.token.empty()) set("LOCKSTEP_TOKEN", options.token);
  // An outer launcher's setting for its own ranks does not apply to these.
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

namespace {

// --- the supervisor ---

constexpr double kSettleSeconds = 1;
constexpr double kInsistSeconds = 0.3;  // longer than what counts as one signal, see below
constexpr double kKillAgainAfterSeconds = 0.05;

// A rank that was killed counts as failed before one that ended by itself, perhaps because of that;
// SIGABRT and SIGPIPE may also be reactions to another rank's end. REQUIRES: both have ended.
bool failed_before(const RankProcess& a, const RankProcess& b) {
  const auto was_killed = [](const RankProcess& rank) {
    const int status = *rank.wait_status;
    return WIFSIGNALED(status) && WTERMSIG(status) != SIGABRT && WTERMSIG(status) != SIGPIPE;
  };
  if (was_killed(a) != was_killed(b)) return was_killed(a);
  return a.end_number < b.end_number;
}

// "SIGTERM"; "signal 40" for one without a name.
std::string signal_name(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

// "[run] rank 1 failed first: exit code 7; its last error line: ...; its log: ...".
std::string describe_failure(const RankProcess& rank) {
  const int status = *rank.wait_status;
  std::string text = fmt::format(
      "[run] rank {} failed first: {}", rank.rank,
      WIFSIGNALED(status)
          ? fmt::format("signal {} ({})", WTERMSIG(status), signal_name(WTERMSIG(status)))
          : fmt::format("exit code {}", WEXITSTATUS(status)));
  if (!rank.last_error_line.empty()) {
    text += fmt::format("; its last error line: {}", rank.last_error_line);
  }
  const std::string& log = rank.streams[2].log_path;
  if (!log.empty()) text += fmt::format("; its log: {}", log);
  return text;
}

// Identifies what is watched: the signals, and after 3r the streams 1 and 2 of rank r.
constexpr std::size_t kSignals = 0;

class Supervisor {
 public:
  // program: the path of options.command[0]. signals: those that the caller passes on and SIGCHLD;
  // this process blocks all of them. caller: this process's parent. tree: what runs below this one.
  // Throws Error{Io}.
  Supervisor(const LaunchOptions& options, std::string program, const sigset_t& signals,
             pid_t caller, const ProcessTree& tree)
      : options_(options),
        program_(std::move(program)),
        signals_(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK)),
        caller_(caller),
        tree_(tree),
        events_(::epoll_create1(EPOLL_CLOEXEC)),
        ends_(::epoll_create1(EPOLL_CLOEXEC)),
        output_(options) {
    watch(signals_, kSignals);
  }

  // Runs the ranks, with their restarts, until their output is written. Returns the exit code. If
  // the caller died, it does not return: it kills all processes below and exits.
  // Throws Error{Io} if processes or logs cannot be made; the caller then kills the processes that
  // were.
  int run() {
    for (int restart_count = 0;; ++restart_count) {
      run_once(restart_count);
      // Most often, other failed ranks' errors repeat the first failure.
      for (RankProcess& rank : ranks_) {
        if (!first_failure_ || !rank.has_failed()) output_.show_held_line(rank);
      }
      if (!first_failure_) break;
      const bool starts_again = restart_count < options_.max_restarts && ended_by_ == 0;
      const std::string failure = describe_failure(*first_failure_);
      output_.say(failure + (starts_again
                                 ? fmt::format("; starting all ranks again (restart {} of {})",
                                               restart_count + 1, options_.max_restarts)
                                 : ""));
      if (starts_again) continue;
      write_error_file(options_.environment, failure);  // a launcher above this one reads it
      break;
    }
    if (ended_by_ != 0 && ended_by_ != SIGPIPE && !first_failure_) {
      output_.say(fmt::format("[run] ended by {}", signal_name(ended_by_)));
    }
    return exit_code();
  }

 private:
  // running: no failure so far. settling: a rank has failed, and the others may report it
  // themselves. insisting: they have got SIGTERM, and get another one: a program may keep the first
  // for the end of a step, which does not come without the rank that failed. terminating: they have
  // got that, or the user's signal. killing: SIGKILL goes to all that are left.
  enum class Phase { running, settling, insisting, terminating, killing };

  // Runs from the start of all ranks until no process is left below this one, and all output of the
  // ranks is read.
  void run_once(int restart_count) {
    try {
      start_all(restart_count);
    } catch (const Error&) {
      tree_.kill();
      ranks_.clear();  // their processes may no longer be signalled
      throw;
    }
    while (std::ranges::any_of(ranks_, [](const RankProcess& r) { return !r.wait_status; })) {
      handle_events();
      if (runtime::has_passed(deadline_)) act_on_deadline();
    }
    tree_.kill();
    read_what_is_left();
  }

  void start_all(int restart_count) {
    first_failure_ = nullptr;
    num_ended_ = 0;
    phase_ = Phase::running;
    deadline_ = {};
    ranks_.clear();
    ranks_.resize(static_cast<std::size_t>(options_.num_ranks));
    for (int local_rank = 0; local_rank < options_.num_ranks; ++local_rank) {
      RankProcess& rank = ranks_[static_cast<std::size_t>(local_rank)];
      rank.local_rank = local_rank;
      rank.rank = options_.node_rank * options_.num_ranks + local_rank;
      output_.open(rank, restart_count);
      StartedProcess started = start_process(
          program_, options_.command, environment_of_rank(options_, local_rank, restart_count),
          cores_of_rank(options_, local_rank));
      rank.process = started.id;
      rank.streams[1].pipe = std::move(started.out);
      rank.streams[2].pipe = std::move(started.err);
      for (const std::size_t number : {1U, 2U}) {
        watch(rank.streams[number].pipe, 3 * static_cast<std::size_t>(local_rank) + number);
      }
      watch_end(rank);
    }
  }

  // Reads at most as much as a pipe holds. A process that we may not kill may still hold it open
  // and write to it.
  void read_what_is_left() {
    constexpr int kMostReads = 16;  // 64 KiB each
    for (RankProcess& rank : ranks_) {
      for (const int number : {1, 2}) {
        const FileDescriptor& pipe = rank.streams[static_cast<std::size_t>(number)].pipe;
        for (int i = 0; i < kMostReads && pipe.is_open(); ++i) output_.read(rank, number);
        if (pipe.is_open()) output_.close(rank, number);
      }
    }
  }

  int exit_code() const {
    if (first_failure_) {
      const int status = *first_failure_->wait_status;
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    if (ended_by_ != 0) return 128 + ended_by_;
    return output_.console_has_failed() ? 1 : 0;
  }

  void watch(const FileDescriptor& events, std::size_t what) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = what;
    const int result =
        ::epoll_ctl(events_.descriptor(), EPOLL_CTL_ADD, events.descriptor(), &event);
    const int number = errno;
    require(result == 0, ErrorCode::Io, "run", "cannot watch the ranks: {}", ::strerror(number));
  }

  // A rank that fails makes others fail, and this process may learn late who has ended. Two events
  // tell of a rank's end, and the earlier one counts: its stderr is closed, before another rank can
  // have noticed; or it has ended (its pidfd says so), if a process that it started holds its
  // stderr open. Kernels before 5.3 have no pidfd.
  void watch_end(RankProcess& rank) {
    epoll_event event{};
    event.data.u64 = static_cast<std::uint64_t>(rank.local_rank);
    event.events = EPOLLET;  // EPOLLHUP alone, once
    ::epoll_ctl(ends_.descriptor(), EPOLL_CTL_ADD, rank.streams[2].pipe.descriptor(), &event);
    rank.pidfd = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, rank.process, 0)));
    event.events = EPOLLIN | EPOLLET;
    if (rank.pidfd.is_open()) {
      ::epoll_ctl(ends_.descriptor(), EPOLL_CTL_ADD, rank.pidfd.descriptor(), &event);
    }
  }

  void note_ends() {
    std::array<epoll_event, 64> events;
    int count = 0;
    while ((count = ::epoll_wait(ends_.descriptor(), events.data(), events.size(), 0)) > 0) {
      for (int i = 0; i < count; ++i) {
        note_end(ranks_[events[static_cast<std::size_t>(i)].data.u64]);
      }
    }
  }

  // Waits for output of the ranks, a signal, or the time.
  void handle_events() {
    std::array<epoll_event, 64> events;
    const int count = ::epoll_wait(events_.descriptor(), events.data(), events.size(),
                                   runtime::milliseconds_until(deadline_));
    note_ends();  // before a stream at its end is closed, which removes its event
    bool has_signals = false;
    for (int i = 0; i < count; ++i) {
      const std::size_t what = events[static_cast<std::size_t>(i)].data.u64;
      has_signals = has_signals || what == kSignals;
      if (what == kSignals) continue;
      RankProcess& rank = ranks_[what / 3];
      output_.read(rank, static_cast<int>(what % 3));
    }
    if (has_signals) read_signals();
    if (output_.reader_has_gone()) end_by(SIGPIPE);  // like any program
  }

  void read_signals() {
    signalfd_siginfo info{};
    while (::read(signals_.descriptor(), &info, sizeof info) == sizeof info) {
      if (::getppid() != caller_) {  // it was killed, and this SIGTERM says so
        tree_.kill();
        ::_exit(128 + SIGKILL);
      }
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) {
        reap();
      } else if (signal == SIGUSR1 || signal == SIGUSR2) {
        send_to_all(signal);
      } else {
        end_by(signal);
      }
    }
  }

  void reap() {
    std::vector<RankProcess*> failed;
    int status = 0;
    for (pid_t process = 0; (process = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto rank = std::ranges::find_if(ranks_, [&](const RankProcess& candidate) {
        return candidate.process == process && !candidate.wait_status;
      });
      if (rank == ranks_.end()) continue;  // an orphan that we had adopted
      rank->wait_status = status;
      if (rank->has_failed()) failed.push_back(&*rank);
    }
    note_ends();
    if (phase_ >= Phase::insisting) return;  // we ended it
    for (RankProcess* rank : failed) {
      note_end(*rank);
      if (!first_failure_ || failed_before(*rank, *first_failure_)) first_failure_ = rank;
    }
    if (first_failure_ && phase_ == Phase::running) enter(Phase::settling, kSettleSeconds);
  }

  void note_end(RankProcess& rank) {
    if (!rank.end_number) rank.end_number = num_ended_++;
  }

  void end_by(int signal) {
    if (ended_by_ != 0) return;
    ended_by_ = signal;
    send_to_all(signal);
    send_to_all(SIGCONT);
    // Ranks that have already got SIGTERM get no more time.
    if (phase_ < Phase::insisting) enter(Phase::terminating, options_.shutdown_seconds);
  }

  void act_on_deadline() {
    if (phase_ == Phase::settling || phase_ == Phase::insisting) {
      send_to_all(SIGTERM);
      send_to_all(SIGCONT);
      phase_ == Phase::settling ? enter(Phase::insisting, kInsistSeconds)
                                : enter(Phase::terminating, options_.shutdown_seconds);
    } else {
      // Repeated until all are reaped, because one may just have been starting another.
      for (const pid_t process : tree_.find()) ::kill(process, SIGKILL);
      enter(Phase::killing, kKillAgainAfterSeconds);
    }
  }

  void enter(Phase phase, double seconds) {
    phase_ = phase;
    deadline_ = runtime::deadline_after(seconds);
  }

  // Sends it to each rank and what it has started in its process group. The number of a rank that
  // has not been reaped belongs to no other process.
  void send_to_all(int signal) const {
    for (const RankProcess& rank : ranks_) {
      if (rank.process > 0 && !rank.wait_status) ::kill(-rank.process, signal);
    }
  }

  const LaunchOptions& options_;
  const std::string program_;
  const FileDescriptor signals_;
  const pid_t caller_;
  const ProcessTree& tree_;
  const FileDescriptor events_;
  const FileDescriptor ends_;  // an epoll, which keeps the order in which ranks end
  RankOutput output_;
  std::vector<RankProcess> ranks_;
  int num_ended_ = 0;
  RankProcess* first_failure_ = nullptr;
  int ended_by_ = 0;  // the signal that ended the ranks; 0: none
  Phase phase_ = Phase::running;
  runtime::Deadline deadline_;  // the phase's
};

// --- its caller ---

using Clock = std::chrono::steady_clock;

// A signal so long after the first one is a second one. One key press can reach a process twice:
// from the terminal and from a program in between.
constexpr std::chrono::milliseconds kSecondSignalAfter{200};

// While it lives, this process blocks the signals that it waits for: those that are passed on, and
// SIGCHLD. SIGHUP is among them only if it is not ignored (nohup: the program outlives its
// terminal).
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
    struct sigaction standard {};  // while ignored, no parent learns how a child ended
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

// The main function of the supervisor's process. It uses no stdio, whose buffers belong to the
// caller.
[[noreturn]] void supervise(const LaunchOptions& options, const std::string& program,
                            const WaitedSignals& signals, pid_t caller) {
  ::setpgid(0, 0);  // signals of the terminal reach only the caller, which passes them on once
  for (const int number : {SIGPIPE, SIGXFSZ, SIGTTOU}) ::signal(number, SIG_IGN);
  const ProcessTree tree;
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != caller) ::_exit(128 + SIGKILL);  // it died before the line above
  int code = 1;
  try {
    code = Supervisor(options, program, signals.set(), caller, tree).run();
  } catch (const Error& error) {
    code = report(error.what(), exit_code(error.code()));
  } catch (const std::exception& error) {
    code = report(error.what(), 1);
  }
  tree.kill();
  ::_exit(code);
}

// Passes signals on to the supervisor until it ends; returns its wait status. Wakes it up if it was
// stopped. A second signal that would end it kills all processes.
int wait_for(pid_t supervisor, const WaitedSignals& signals, const ProcessTree& tree) {
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
      tree.kill();
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
  const ProcessTree tree;
  const WaitedSignals signals;
  const pid_t caller = ::getpid();
  const pid_t supervisor = ::fork();
  if (supervisor == 0) supervise(options, program, signals, caller);
  const int number = errno;
  int status = 0;
  if (supervisor > 0) status = wait_for(supervisor, signals, tree);
  tree.kill();  // there are some only if the supervisor was killed
  require(supervisor > 0, ErrorCode::Io, "run", "cannot make a process: {}", ::strerror(number));
  require(!WIFSIGNALED(status), ErrorCode::Comm, "run",
          "the process that looked after the ranks was killed by signal {}; all ranks were ended",
          WTERMSIG(status));
  return WEXITSTATUS(status);
}

}  // namespace lockstep::launch
