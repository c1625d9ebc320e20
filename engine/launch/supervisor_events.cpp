// What the supervisor waits for, and what it does when that happens.
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "engine/launch/descendants.h"
#include "engine/launch/error_file.h"
#include "engine/launch/failure.h"
#include "engine/launch/supervisor.h"

namespace lockstep::launch {

// Waits for output of the ranks, a signal, room on the console, or the time.
void Supervisor::wait_for_events(runtime::Deadline until, Reading reading) {
  const Console& console = output_.console();
  std::vector<pollfd> events{{keeper_, POLLIN, 0}, {signals_, POLLIN, 0}};
  const bool is_writing = !console.is_empty();
  if (is_writing) events.push_back({console.waiting_for(), POLLOUT, 0});
  const std::size_t first_stream = events.size();
  std::vector<std::pair<Worker*, int>> sources;
  for (Worker& worker : workers_) {
    for (const int number : {1, 2}) {
      const int descriptor = worker.streams[static_cast<std::size_t>(number)].pipe.descriptor();
      if (descriptor < 0 || console.is_full() || reading == Reading::nothing) continue;
      events.push_back({descriptor, POLLIN, 0});
      sources.emplace_back(&worker, number);
    }
  }
  if (::poll(events.data(), events.size(), runtime::milliseconds_until(until)) <= 0) return;
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
  remove_error_folder(options_.error_folder);
  ::_exit(128 + SIGKILL);
}

}  // namespace lockstep::launch
