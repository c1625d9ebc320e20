#include "engine/launch/group_ending.h"

#include <signal.h>

#include "engine/launch/descendants.h"
#include "engine/launch/supervised_signals.h"

namespace lockstep::launch {
namespace {

constexpr double kSettleSeconds = 1;
constexpr double kKillAgainAfterSeconds = 0.05;

}  // namespace

GroupEnding::GroupEnding(const std::vector<Worker>& workers, double shutdown_seconds)
    : workers_(workers), shutdown_seconds_(shutdown_seconds) {}

void GroupEnding::start_over() {
  phase_ = Phase::running;
  deadline_ = {};
}

void GroupEnding::after_failure() {
  if (phase_ == Phase::running) enter(Phase::settling, kSettleSeconds);
}

void GroupEnding::pass_on(int signal) {
  if (signal == SIGUSR1 || signal == SIGUSR2) return send_to_all(signal);
  const auto now = runtime::Clock::now();
  if (ended_by_ == 0) {
    ended_by_ = signal;
    ended_at_ = now;
    if (signal != SIGPIPE) ++num_signals_;
    send_to_all(signal);
    send_to_all(SIGCONT);
    if (phase_ == Phase::terminating) return;  // they have been told before, and time goes on
    if (phase_ != Phase::killing) enter(Phase::terminating, shutdown_seconds_);
  } else if (now - ended_at_ >= kSecondSignalAfter) {
    ++num_signals_;
    enter(Phase::killing, 0);
  }
}

void GroupEnding::act_on_deadline() {
  if (!runtime::has_passed(deadline_)) return;
  if (phase_ == Phase::settling) {
    send_to_all(SIGTERM);
    send_to_all(SIGCONT);
    enter(Phase::terminating, shutdown_seconds_);
  } else {
    // Repeated until all are reaped: one may just have been making another.
    send_to_all(SIGKILL);
    for (const pid_t process : find_descendants()) ::kill(process, SIGKILL);
    enter(Phase::killing, kKillAgainAfterSeconds);
  }
}

void GroupEnding::enter(Phase phase, double seconds) {
  phase_ = phase;
  deadline_ = runtime::deadline_after(seconds);
}

// To each rank and what it has started in its process group. The number of a rank that has not been
// reaped belongs to nobody else.
void GroupEnding::send_to_all(int signal) const {
  for (const Worker& worker : workers_) {
    if (!worker.wait_status) ::kill(-worker.process, signal);
  }
}

}  // namespace lockstep::launch
