#include "engine/launch/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>

#include "engine/core/error.h"
#include "engine/launch/descendants.h"
#include "engine/launch/error_file.h"
#include "engine/launch/failure.h"
#include "engine/launch/worker_process.h"

namespace lockstep::launch {
namespace {

bool is_readable(int descriptor) {
  pollfd event{descriptor, POLLIN, 0};
  return ::poll(&event, 1, 0) > 0;
}

// How many reads take all that a pipe can hold.
std::size_t reads_to_empty(int pipe) {
  const int num_bytes = pipe < 0 ? 0 : ::fcntl(pipe, F_GETPIPE_SZ);
  return static_cast<std::size_t>(std::max(num_bytes, 0)) / GroupOutput::kMaxReadBytes + 1;
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
    show_other_errors();
    if (!first_failure_) break;
    const bool starts_again = restart_count < options_.max_restarts && ending_.ended_by() == 0;
    const std::string failure = describe_failure(*first_failure_);
    output_.say(failure + (starts_again
                               ? fmt::format("; starting all ranks again (restart {} of {})",
                                             restart_count + 1, options_.max_restarts)
                               : ""));
    if (starts_again) continue;
    write_error_file(options_.environment, failure);  // for a launcher above this one
    break;
  }
  const int signal = ending_.ended_by();
  if (signal != 0 && signal != SIGPIPE && !first_failure_) {
    output_.say(fmt::format("[run] ended by {}", signal_name(signal)));
  }
  flush_console();
  return exit_code();
}

// What ranks that failed say of the first failure is that failure once more.
void Supervisor::show_other_errors() {
  for (Worker& worker : workers_) {
    if (!first_failure_ || !worker.has_failed()) output_.show_held_line(worker);
  }
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
    workers_.clear();  // their processes are no longer ours to signal
    flush_console();   // why they were to be started again
    throw;
  }
  const auto is_running = [](const Worker& worker) { return !worker.wait_status; };
  while (std::ranges::any_of(workers_, is_running)) {
    wait_for_events(ending_.deadline(), Reading::ranks);
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
    worker.error_file = error_file_path(options_, restart_count, local_rank);
    output_.open(worker, restart_count);
    StartedProcess started = start_process(program_, options_.command,
                                           worker_environment(options_, local_rank, restart_count),
                                           cores_of_worker(options_, local_rank));
    worker.process = started.id;
    worker.streams[1].pipe = std::move(started.out);
    worker.streams[2].pipe = std::move(started.err);
    end_order_.watch(index, started.id, worker.streams[2].pipe.descriptor());
  }
}

// All processes have ended that could be reached, so what counts is what the pipes hold now. One
// may still be held open, and written to, by a process that is not ours to kill.
void Supervisor::read_what_is_left() {
  for (Worker& worker : workers_) {
    for (const int number : {1, 2}) {
      const WorkerStream& stream = worker.streams[static_cast<std::size_t>(number)];
      for (std::size_t n = reads_to_empty(stream.pipe.descriptor()); n > 0; --n) {
        if (output_.console().is_full()) flush_console();
        if (!stream.pipe.is_open() || !is_readable(stream.pipe.descriptor())) break;
        output_.read(worker, number);
      }
      if (stream.pipe.is_open()) output_.close(worker, number);
    }
  }
}

// All processes have ended, so this waits for the console's reader alone: as long as it reads, or
// nobody minds. Once a signal has ended the group, a reader that takes nothing has the time that
// the ranks had, and a signal that comes now ends the wait.
void Supervisor::flush_console() {
  const int num_signals = ending_.num_signals();
  runtime::Deadline until;
  if (ending_.ended_by() != 0) until = runtime::deadline_after(options_.shutdown_seconds);
  while (!output_.console().is_empty()) {
    const std::size_t num_bytes = output_.console().num_bytes();
    wait_for_events(until, Reading::nothing);
    if (ending_.num_signals() != num_signals) return output_.give_up_console();
    if (!until) continue;
    if (output_.console().num_bytes() != num_bytes) {
      until = runtime::deadline_after(options_.shutdown_seconds);
    } else if (runtime::has_passed(until)) {
      output_.give_up_console();
    }
  }
}

}  // namespace lockstep::launch
