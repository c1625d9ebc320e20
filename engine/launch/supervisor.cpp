#include "engine/launch/supervisor.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "engine/core/error.h"
#include "engine/launch/process.h"
#include "engine/runtime/cpu_cores.h"

namespace lockstep::launch {
namespace {

constexpr double kSettleSeconds = 1;
constexpr double kKillAgainAfterSeconds = 0.05;

// A rank that was killed counts as failed before one that ended by itself, perhaps because of that;
// SIGABRT and SIGPIPE may be an answer to another rank's end, too. REQUIRES: both have ended.
bool failed_before(const RankProcess& a, const RankProcess& b) {
  const auto was_killed = [](const RankProcess& rank) {
    const int status = *rank.wait_status;
    return WIFSIGNALED(status) && WTERMSIG(status) != SIGABRT && WTERMSIG(status) != SIGPIPE;
  };
  if (was_killed(a) != was_killed(b)) return was_killed(a);
  return a.end_number < b.end_number;
}

}  // namespace

Supervisor::Supervisor(const LaunchOptions& options, std::string program, int signals, pid_t caller)
    : options_(options),
      program_(std::move(program)),
      signals_(signals),
      caller_(caller),
      end_events_(::epoll_create1(EPOLL_CLOEXEC)),
      output_(options) {
  require(end_events_.is_open() && signals_ >= 0, ErrorCode::Io, "run",
          "cannot watch the ranks: {}", ::strerror(errno));
}

int Supervisor::run() {
  for (int restart_count = 0;; ++restart_count) {
    run_once(restart_count);
    // Failed ranks' errors repeat the first failure, most often.
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
    write_error_file(options_.environment, failure);  // for a launcher above this one
    break;
  }
  if (ended_by_ != 0 && ended_by_ != SIGPIPE && !first_failure_) {
    output_.say(fmt::format("[run] ended by {}", signal_name(ended_by_)));
  }
  return exit_code();
}

int Supervisor::exit_code() const {
  if (first_failure_) {
    const int status = *first_failure_->wait_status;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  if (ended_by_ != 0) return 128 + ended_by_;
  return output_.console_has_failed() ? 1 : 0;
}

// From the start of all ranks until no process is left below this one, and everything that the
// ranks have said is read.
void Supervisor::run_once(int restart_count) {
  try {
    start_all(restart_count);
  } catch (const Error&) {
    kill_descendants();
    ranks_.clear();  // their processes are no longer ours to signal
    throw;
  }
  while (std::ranges::any_of(ranks_, [](const RankProcess& r) { return !r.wait_status; })) {
    wait_for_events();
    if (runtime::has_passed(deadline_)) act_on_deadline();
  }
  kill_descendants();
  read_what_is_left();
}

void Supervisor::start_all(int restart_count) {
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
    StartedProcess started = start_process(program_, options_.command,
                                           environment_of_rank(options_, local_rank, restart_count),
                                           cores_of_rank(options_, local_rank));
    rank.process = started.id;
    rank.streams[1].pipe = std::move(started.out);
    rank.streams[2].pipe = std::move(started.err);
    watch_end(rank);
  }
}

// Reads as much as a pipe holds at most. It may still be held open, and written to, by a process
// that is not ours to kill.
void Supervisor::read_what_is_left() {
  constexpr int kMostReads = 16;  // of 64 KiB each
  for (RankProcess& rank : ranks_) {
    for (const int number : {1, 2}) {
      const FileDescriptor& pipe = rank.streams[static_cast<std::size_t>(number)].pipe;
      for (int i = 0; i < kMostReads && pipe.is_open(); ++i) output_.read(rank, number);
      if (pipe.is_open()) output_.close(rank, number);
    }
  }
}

// Waits for output of the ranks, a signal, or the time.
void Supervisor::wait_for_events() {
  std::vector<pollfd> events{{signals_, POLLIN, 0}};
  for (const RankProcess& rank : ranks_) {
    events.push_back({rank.streams[1].pipe.descriptor(), POLLIN, 0});
    events.push_back({rank.streams[2].pipe.descriptor(), POLLIN, 0});
  }
  if (::poll(events.data(), events.size(), runtime::milliseconds_until(deadline_)) <= 0) return;
  note_ends();  // before a stream at its end is closed, which takes its event away
  // What a rank said before it died is read before its death is noticed.
  for (std::size_t i = 1; i < events.size(); ++i) {
    if (events[i].revents) output_.read(ranks_[(i - 1) / 2], i % 2 == 1 ? 1 : 2);
  }
  if (events[0].revents) read_signals();
  if (output_.reader_has_gone()) end_by(SIGPIPE);  // as for any program
}

void Supervisor::read_signals() {
  signalfd_siginfo info{};
  while (::read(signals_, &info, sizeof info) == sizeof info) {
    if (::getppid() != caller_) {  // it was killed, and this is the SIGTERM that says so
      kill_descendants();
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

void Supervisor::reap() {
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
  if (phase_ == Phase::terminating || phase_ == Phase::killing) return;  // our doing
  for (RankProcess* rank : failed) {
    note_end(*rank);
    if (!first_failure_ || failed_before(*rank, *first_failure_)) first_failure_ = rank;
  }
  if (first_failure_ && phase_ == Phase::running) enter(Phase::settling, kSettleSeconds);
}

// A rank that fails makes others fail, and this process may be late to ask who has ended. Two
// events tell of a rank's end, and the earlier one counts: its stderr is closed, as are its
// connections, before another rank has noticed and ended; or it has ended (its pidfd says so),
// where a process that it started holds its stderr open. Kernels before 5.3 have no pidfd.
void Supervisor::watch_end(RankProcess& rank) {
  epoll_event event{};
  event.data.u64 = static_cast<std::uint64_t>(rank.local_rank);
  event.events = EPOLLET;  // EPOLLHUP alone, once
  ::epoll_ctl(end_events_.descriptor(), EPOLL_CTL_ADD, rank.streams[2].pipe.descriptor(), &event);
  rank.pidfd = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, rank.process, 0)));
  event.events = EPOLLIN | EPOLLET;
  ::epoll_ctl(end_events_.descriptor(), EPOLL_CTL_ADD, rank.pidfd.descriptor(), &event);
}

void Supervisor::note_ends() {
  std::array<epoll_event, 64> events;
  for (int count = 0;
       (count = ::epoll_wait(end_events_.descriptor(), events.data(), events.size(), 0)) > 0;) {
    for (int i = 0; i < count; ++i) note_end(ranks_[events[static_cast<std::size_t>(i)].data.u64]);
  }
}

void Supervisor::note_end(RankProcess& rank) {
  if (!rank.end_number) rank.end_number = num_ended_++;
}

void Supervisor::end_by(int signal) {
  if (ended_by_ != 0) return;
  ended_by_ = signal;
  send_to_all(signal);
  send_to_all(SIGCONT);
  // Ranks that have got SIGTERM before get no more time.
  if (phase_ < Phase::terminating) enter(Phase::terminating, options_.shutdown_seconds);
}

void Supervisor::act_on_deadline() {
  if (phase_ == Phase::settling) {
    send_to_all(SIGTERM);
    send_to_all(SIGCONT);
    enter(Phase::terminating, options_.shutdown_seconds);
  } else {
    // Repeated until all are reaped: one may just have been making another.
    for (const pid_t process : find_descendants()) ::kill(process, SIGKILL);
    enter(Phase::killing, kKillAgainAfterSeconds);
  }
}

void Supervisor::enter(Phase phase, double seconds) {
  phase_ = phase;
  deadline_ = runtime::deadline_after(seconds);
}

// To each rank and what it has started in its process group. The number of a rank that has not been
// reaped is given to no other process.
void Supervisor::send_to_all(int signal) const {
  for (const RankProcess& rank : ranks_) {
    if (rank.process > 0 && !rank.wait_status) ::kill(-rank.process, signal);
  }
}

std::string signal_name(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

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

}  // namespace lockstep::launch
