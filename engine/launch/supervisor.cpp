#include "engine/launch/supervisor.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "engine/core/error.h"
#include "engine/launch/descendants.h"

namespace lockstep::launch {
namespace {

constexpr double kSettleSeconds = 1;
constexpr auto kSecondSignalAfter = std::chrono::seconds(1);
constexpr std::size_t kMaxQuotedBytes = 400;

bool ends_the_group(int signal) {
  return signal != SIGUSR1 && signal != SIGUSR2;
}

std::string signal_name(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

// What a shell says: the exit code, or 128 + the signal's number.
int shell_code(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

// By a signal that is no answer to another rank's end, as abort() or a broken pipe may be.
bool was_killed(const Worker& worker) {
  const int status = *worker.wait_status;
  return WIFSIGNALED(status) && WTERMSIG(status) != SIGABRT && WTERMSIG(status) != SIGPIPE;
}

// Which of two failed ranks failed first.
bool is_before(const Worker& a, const Worker& b) {
  if (was_killed(a) != was_killed(b)) return was_killed(a);
  return a.end_number < b.end_number;
}

Streams streams_of(const std::vector<Streams>& by_local_rank, int local_rank) {
  const auto index = static_cast<std::size_t>(local_rank);
  return index < by_local_rank.size() ? by_local_rank[index] : Streams::none;
}

bool contains(Streams streams, int number) {
  return (static_cast<int>(streams) & number) != 0;
}

}  // namespace

Supervisor::Supervisor(const WorkerGroupOptions& options, std::string program, int keeper,
                       int signals)
    : options_(options),
      program_(std::move(program)),
      keeper_(keeper),
      signals_(signals),
      ends_(::epoll_create1(EPOLL_CLOEXEC)) {
  require(ends_ >= 0, ErrorCode::Io, "run", "cannot watch the ranks: {}", std::strerror(errno));
}

Supervisor::~Supervisor() {
  ::close(ends_);
}

int Supervisor::run() {
  for (int restart_count = 0;; ++restart_count) {
    start_all(restart_count);
    run_until_all_ended();
    if (!first_failure_) break;
    const bool starts_again = restart_count < options_.max_restarts && passed_signal_ == 0;
    say(describe_failure(*first_failure_) +
        (starts_again ? fmt::format("; starting all ranks again (restart {} of {})",
                                    restart_count + 1, options_.max_restarts)
                      : ""));
    if (!starts_again) break;
  }
  if (passed_signal_ != 0 && passed_signal_ != SIGPIPE && !first_failure_) {
    say(fmt::format("[run] ended by {}", signal_name(passed_signal_)));
  }
  flush_console();
  return exit_code();
}

int Supervisor::exit_code() const {
  if (first_failure_) return shell_code(*first_failure_->wait_status);
  if (passed_signal_ != 0) return 128 + passed_signal_;
  return console_failed_ ? 1 : 0;
}

void Supervisor::start_all(int restart_count) {
  phase_ = Phase::running;
  deadline_ = Clock::time_point::max();
  first_failure_ = nullptr;
  workers_ = std::vector<Worker>(static_cast<std::size_t>(options_.num_workers));
  for (int local_rank = 0; local_rank < options_.num_workers; ++local_rank) {
    Worker& worker = workers_[static_cast<std::size_t>(local_rank)];
    worker.local_rank = local_rank;
    worker.rank = options_.node_rank * options_.num_workers + local_rank;
    open_logs(worker, restart_count);
    const StartedProcess started = start_process(
        program_, options_.command, worker_environment(options_, local_rank, restart_count),
        cores_of_worker(options_, local_rank));
    worker.process = started.id;
    worker.streams[1].descriptor = started.out;
    worker.streams[2].descriptor = started.err;
    epoll_event end{};  // reports EPOLLHUP alone, once
    end.events = EPOLLET;
    end.data.u64 = static_cast<std::uint64_t>(local_rank);
    ::epoll_ctl(ends_, EPOLL_CTL_ADD, started.err, &end);
  }
}

void Supervisor::open_logs(Worker& worker, int restart_count) {
  const auto& shown = options_.console_filter;
  const bool is_shown = shown.empty() || std::ranges::count(shown, worker.local_rank) > 0;
  const Streams redirects = streams_of(options_.redirects, worker.local_rank);
  const Streams tee = streams_of(options_.tee, worker.local_rank);
  for (const int number : {1, 2}) {
    WorkerStream& stream = worker.streams[static_cast<std::size_t>(number)];
    stream.on_console = is_shown && (contains(tee, number) || !contains(redirects, number));
    if (contains(redirects, number) || contains(tee, number)) {
      stream.log = LogFile(log_path(options_, restart_count, worker.local_rank, number));
    }
  }
}

// Ends with no process below this one, and everything that the ranks have said read.
void Supervisor::run_until_all_ended() {
  const auto is_running = [](const Worker& worker) { return !worker.wait_status; };
  while (std::ranges::any_of(workers_, is_running)) {
    wait_for_events(deadline_);
    act_on_deadline();
  }
  kill_descendants();
  for (Worker& worker : workers_) {
    for (const int number : {1, 2}) {
      WorkerStream& stream = worker.streams[static_cast<std::size_t>(number)];
      while (stream.descriptor >= 0) {
        if (console_.is_full()) {
          flush_console();
        }
        const int before = stream.descriptor;
        pollfd event{before, POLLIN, 0};
        if (::poll(&event, 1, 0) <= 0) {
          close_stream(worker, number);  // held open by nobody that we could still reach
        } else {
          read_stream(worker, number);
        }
      }
    }
  }
}

// Waits for output of the ranks, a signal, room on the console, or the time.
void Supervisor::wait_for_events(Clock::time_point until) {
  std::vector<pollfd> events{{keeper_, POLLIN, 0}, {signals_, POLLIN, 0}};
  if (!console_.is_empty()) events.push_back({console_.waiting_for(), POLLOUT, 0});
  const std::size_t first_stream = events.size();
  std::vector<std::pair<Worker*, int>> sources;
  for (Worker& worker : workers_) {
    for (const int number : {1, 2}) {
      const int descriptor = worker.streams[static_cast<std::size_t>(number)].descriptor;
      if (descriptor < 0 || console_.is_full()) continue;
      events.push_back({descriptor, POLLIN, 0});
      sources.emplace_back(&worker, number);
    }
  }
  int milliseconds = -1;
  if (until != Clock::time_point::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    milliseconds = static_cast<int>(std::clamp<std::int64_t>(left, 0, 60000));
  }
  if (::poll(events.data(), events.size(), milliseconds) <= 0) return;
  if (events[0].revents) end_with_keeper();
  note_ends();  // before a stream at its end is closed here and leaves ends_
  // What a rank said before it died is read before its death is noticed.
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (events[first_stream + i].revents) read_stream(*sources[i].first, sources[i].second);
  }
  if (events[1].revents) read_signals();
  if (first_stream == 3 && events[2].revents) write_console();
}

void Supervisor::read_signals() {
  signalfd_siginfo info{};
  while (::read(signals_, &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) {
      reap();
    } else {
      pass_on(signal);
    }
  }
}

void Supervisor::pass_on(int signal) {
  if (!ends_the_group(signal)) return send_to_all(signal);
  const auto now = Clock::now();
  if (passed_signal_ == 0) {
    passed_signal_ = signal;
    passed_signal_at_ = now;
    send_to_all(signal);
    send_to_all(SIGCONT);
    if (phase_ != Phase::killing) enter(Phase::terminating, options_.shutdown_seconds);
  } else if (now - passed_signal_at_ >= kSecondSignalAfter) {
    enter(Phase::killing, 0);
  }
}

void Supervisor::reap() {
  std::vector<Worker*> ended;
  int status = 0;
  for (pid_t process = 0; (process = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto worker = std::ranges::find_if(workers_, [&](const Worker& candidate) {
      return candidate.process == process && !candidate.wait_status;
    });
    if (worker == workers_.end()) continue;  // an orphan that we had adopted
    worker->wait_status = status;
    ended.push_back(&*worker);
  }
  note_failures(ended);
}

// A rank's end is reported by the kernel after its connections were closed, so others that end
// because of it may be found dead before it. But its stderr was closed before its connections were
// (a process's files are closed in the order of their numbers), and epoll keeps the order of events
// however late it is asked.
void Supervisor::note_ends() {
  std::array<epoll_event, 64> events;
  for (int count = 0; (count = ::epoll_wait(ends_, events.data(), events.size(), 0)) > 0;) {
    for (int i = 0; i < count; ++i) {
      workers_[events[static_cast<std::size_t>(i)].data.u64].end_number = num_ends_++;
    }
  }
}

void Supervisor::note_failures(const std::vector<Worker*>& ended) {
  if (phase_ != Phase::running && phase_ != Phase::settling) return;
  for (Worker* worker : ended) {
    if (!worker->has_failed()) continue;
    if (!first_failure_ || is_before(*worker, *first_failure_)) first_failure_ = worker;
  }
  if (first_failure_ && phase_ == Phase::running) enter(Phase::settling, kSettleSeconds);
}

void Supervisor::enter(Phase phase, double seconds) {
  phase_ = phase;
  deadline_ = Clock::now() +
              std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

void Supervisor::act_on_deadline() {
  if (Clock::now() < deadline_) return;
  if (phase_ == Phase::settling) {
    send_to_all(SIGTERM);
    send_to_all(SIGCONT);
    enter(Phase::terminating, options_.shutdown_seconds);
  } else {
    // Repeated until all are reaped: one may just have been making another.
    send_to_all(SIGKILL);
    for (const pid_t process : find_descendants()) ::kill(process, SIGKILL);
    enter(Phase::killing, 0.05);
  }
}

// To each rank and what it has started in its process group.
void Supervisor::send_to_all(int signal) {
  for (const Worker& worker : workers_) {
    if (!worker.wait_status) ::kill(-worker.process, signal);
  }
}

void Supervisor::read_stream(Worker& worker, int number) {
  WorkerStream& stream = worker.streams[static_cast<std::size_t>(number)];
  std::array<char, 64 * 1024> bytes;
  const ssize_t count = ::read(stream.descriptor, bytes.data(), bytes.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return close_stream(worker, number);
  const std::string_view text(bytes.data(), static_cast<std::size_t>(count));
  if (stream.log.is_open()) {
    if (const int problem = stream.log.write(text)) {
      say(
          fmt::format("[run] cannot write the log {}: {}; rank {} goes on, and its output goes to "
                      "the console",
                      stream.log.path(), std::strerror(problem), worker.rank));
      stream.on_console = true;
    }
  }
  stream.lines.add(text, [&](std::string_view line) { print_line(worker, number, line); });
}

void Supervisor::close_stream(Worker& worker, int number) {
  WorkerStream& stream = worker.streams[static_cast<std::size_t>(number)];
  stream.lines.finish([&](std::string_view line) { print_line(worker, number, line); });
  ::close(stream.descriptor);
  stream.descriptor = -1;
}

void Supervisor::print_line(Worker& worker, int number, std::string_view line) {
  const WorkerStream& stream = worker.streams[static_cast<std::size_t>(number)];
  const bool is_plain = options_.lines == Lines::plain;
  const std::string prefix = is_plain ? "" : fmt::format("[{}] ", worker.rank);
  if (stream.on_console) console_.print(number, prefix, line);
  const bool is_blank = line.find_first_not_of(" \t\r") == std::string_view::npos;
  if (number == 2 && !is_blank) worker.last_error_line = line.substr(0, kMaxQuotedBytes);
}

void Supervisor::write_console() {
  const int descriptor = console_.waiting_for();
  const int problem = console_.write_some();
  if (problem == 0) return;
  if (problem == EPIPE) {
    // As for any program whose reader has gone, for example: lockstep run ... | head
    if (descriptor == STDOUT_FILENO) pass_on(SIGPIPE);
    return;
  }
  console_failed_ = true;
  say(fmt::format("[run] cannot write to {}: {}; the ranks go on",
                  descriptor == STDOUT_FILENO ? "standard output" : "standard error",
                  std::strerror(problem)));
}

void Supervisor::flush_console() {
  while (!console_.is_empty()) {
    pollfd events[] = {{keeper_, POLLIN, 0}, {console_.waiting_for(), POLLOUT, 0}};
    if (::poll(events, 2, -1) < 0) continue;
    if (events[0].revents) end_with_keeper();
    if (events[1].revents) write_console();
  }
}

void Supervisor::say(std::string_view message) {
  console_.print(STDERR_FILENO, "lockstep: ", message);
}

std::string Supervisor::describe_failure(const Worker& worker) const {
  const int status = *worker.wait_status;
  std::string text = fmt::format(
      "[run] rank {} failed first: {}", worker.rank,
      WIFSIGNALED(status)
          ? fmt::format("signal {} ({})", WTERMSIG(status), signal_name(WTERMSIG(status)))
          : fmt::format("exit code {}", WEXITSTATUS(status)));
  if (!worker.last_error_line.empty()) {
    text += fmt::format("; its last error line: {}", worker.last_error_line);
  }
  const std::string& log = worker.streams[2].log.path();
  if (!log.empty()) text += fmt::format("; its log: {}", log);
  return text;
}

void Supervisor::end_with_keeper() {
  kill_descendants();
  ::_exit(128 + SIGKILL);
}

}  // namespace lockstep::launch
