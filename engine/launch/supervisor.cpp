#include "engine/launch/supervisor.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "engine/core/error.h"
#include "engine/launch/descendants.h"
#include "engine/launch/failure.h"
#include "engine/launch/worker_process.h"

namespace lockstep::launch {
namespace {

using Clock = GroupEnding::Clock;

// For poll: rounded up, at most a minute, -1 without a deadline.
int milliseconds_until(Clock::time_point end) {
  if (end == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60000));
}

bool is_readable(int descriptor) {
  pollfd event{descriptor, POLLIN, 0};
  return ::poll(&event, 1, 0) > 0;
}

}  // namespace

Supervisor::Supervisor(const WorkerGroupOptions& options, std::string program, int keeper,
                       int signals)
    : options_(options),
      program_(std::move(program)),
      keeper_(keeper),
      signals_(signals),
      output_(options),
      ending_(workers_, options.shutdown_seconds) {}

int Supervisor::run() {
  for (int restart_count = 0;; ++restart_count) {
    run_once(restart_count);
    if (!first_failure_) break;
    const bool starts_again = restart_count < options_.max_restarts && ending_.ended_by() == 0;
    output_.say(describe_failure(*first_failure_) +
                (starts_again ? fmt::format("; starting all ranks again (restart {} of {})",
                                            restart_count + 1, options_.max_restarts)
                              : ""));
    if (!starts_again) break;
  }
  const int signal = ending_.ended_by();
  if (signal != 0 && signal != SIGPIPE && !first_failure_) {
    output_.say(fmt::format("[run] ended by {}", signal_name(signal)));
  }
  flush_console();
  return exit_code();
}

int Supervisor::exit_code() const {
  if (first_failure_) return shell_code(*first_failure_->wait_status);
  if (ending_.ended_by() != 0) return 128 + ending_.ended_by();
  return output_.console_has_failed() ? 1 : 0;
}

// From the start of all ranks until no process is left below this one, and everything that the
// ranks have said is read.
void Supervisor::run_once(int restart_count) {
  try {
    start_all(restart_count);
  } catch (const Error&) {
    kill_descendants();
    read_what_is_left();
    workers_.clear();
    flush_console();
    throw;
  }
  const auto is_running = [](const Worker& worker) { return !worker.wait_status; };
  while (std::ranges::any_of(workers_, is_running)) {
    wait_for_events(ending_.deadline());
    ending_.act_on_deadline();
  }
  kill_descendants();
  read_what_is_left();
}

void Supervisor::start_all(int restart_count) {
  first_failure_ = nullptr;
  ending_.start_over();
  workers_.clear();
  workers_.resize(static_cast<std::size_t>(options_.num_workers));
  end_order_.start_over(workers_.size());
  for (int local_rank = 0; local_rank < options_.num_workers; ++local_rank) {
    const auto index = static_cast<std::size_t>(local_rank);
    Worker& worker = workers_[index];
    worker.local_rank = local_rank;
    worker.rank = options_.node_rank * options_.num_workers + local_rank;
    output_.open(worker, restart_count);
    const StartedProcess started = start_process(
        program_, options_.command, worker_environment(options_, local_rank, restart_count),
        cores_of_worker(options_, local_rank));
    worker.process = started.id;
    worker.streams[1].descriptor = started.out;
    worker.streams[2].descriptor = started.err;
    end_order_.watch(index, started.id, started.err);
  }
}

// When all processes have ended, a pipe holds what it holds; one that is still open is held by a
// process that could not be killed.
void Supervisor::read_what_is_left() {
  for (Worker& worker : workers_) {
    for (const int number : {1, 2}) {
      const WorkerStream& stream = worker.streams[static_cast<std::size_t>(number)];
      while (stream.descriptor >= 0) {
        if (output_.console().is_full()) {
          flush_console();
        } else if (is_readable(stream.descriptor)) {
          output_.read(worker, number);
        } else {
          output_.close(worker, number);
        }
      }
    }
  }
}

// All processes have ended, so this waits for the console's reader alone: as long as it reads, or
// nobody minds. Once a signal has ended the group, a reader that takes nothing has the time that
// the ranks had, and a signal that comes now ends the wait.
void Supervisor::flush_console() {
  const std::chrono::duration<double> patience(std::min(options_.shutdown_seconds, 1e8));
  const auto out_of_patience = [&] {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(patience);
  };
  const int num_signals = ending_.num_signals();
  auto until = ending_.ended_by() != 0 ? out_of_patience() : Clock::time_point::max();
  while (!output_.console().is_empty()) {
    const std::size_t num_bytes = output_.console().num_bytes();
    wait_for_events(until);
    if (ending_.num_signals() != num_signals) return output_.give_up_console();
    if (until == Clock::time_point::max()) continue;
    if (output_.console().num_bytes() != num_bytes) {
      until = out_of_patience();
    } else if (Clock::now() >= until) {
      output_.give_up_console();
    }
  }
}

// Waits for output of the ranks, a signal, room on the console, or the time.
void Supervisor::wait_for_events(Clock::time_point until) {
  const Console& console = output_.console();
  std::vector<pollfd> events{{keeper_, POLLIN, 0}, {signals_, POLLIN, 0}};
  const bool is_writing = !console.is_empty();
  if (is_writing) events.push_back({console.waiting_for(), POLLOUT, 0});
  const std::size_t first_stream = events.size();
  std::vector<std::pair<Worker*, int>> sources;
  for (Worker& worker : workers_) {
    for (const int number : {1, 2}) {
      const int descriptor = worker.streams[static_cast<std::size_t>(number)].descriptor;
      if (descriptor < 0 || console.is_full()) continue;
      events.push_back({descriptor, POLLIN, 0});
      sources.emplace_back(&worker, number);
    }
  }
  if (::poll(events.data(), events.size(), milliseconds_until(until)) <= 0) return;
  if (events[0].revents) end_with_keeper();
  end_order_.update();  // before a stream at its end is closed
  // What a rank said before it died is read before its death is noticed.
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (events[first_stream + i].revents) output_.read(*sources[i].first, sources[i].second);
  }
  if (events[1].revents) read_signals();
  if (is_writing && events[2].revents) write_console();
}

void Supervisor::read_signals() {
  signalfd_siginfo info{};
  while (::read(signals_, &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) {
      reap();
    } else {
      ending_.pass_on(signal);
    }
  }
}

void Supervisor::reap() {
  std::vector<Worker*> failed;
  int status = 0;
  for (pid_t process = 0; (process = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto worker = std::ranges::find_if(workers_, [&](const Worker& candidate) {
      return candidate.process == process && !candidate.wait_status;
    });
    if (worker == workers_.end()) continue;  // an orphan that we had adopted
    worker->wait_status = status;
    if (worker->has_failed()) failed.push_back(&*worker);
  }
  end_order_.update();
  if (!ending_.is_by_ranks()) return;
  for (Worker* worker : failed) {
    const auto index = static_cast<std::size_t>(worker->local_rank);
    end_order_.note_end(index);
    worker->end_number = end_order_.number_of(index);
    if (!first_failure_ || failed_before(*worker, *first_failure_)) first_failure_ = worker;
  }
  if (first_failure_) ending_.after_failure();
}

void Supervisor::write_console() {
  output_.write_some();
  // As for any program whose reader has gone.
  if (output_.reader_has_gone() && ending_.ended_by() == 0) ending_.pass_on(SIGPIPE);
}

void Supervisor::end_with_keeper() {
  kill_descendants();
  ::_exit(128 + SIGKILL);
}

}  // namespace lockstep::launch
