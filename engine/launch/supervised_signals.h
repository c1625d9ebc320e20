// The signals that keeper and supervisor wait for instead of being interrupted by them.
#pragma once

#include <signal.h>

#include <chrono>

namespace lockstep::launch {

// A signal so long after the first one is a second one. One key press can reach a process twice,
// from the terminal and from a program between them.
inline constexpr std::chrono::milliseconds kSecondSignalAfter{200};

// While it lives, this process blocks SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD and,
// where it is not ignored (nohup: the program outlives its terminal), SIGHUP. SIGCHLD has its
// standard action, since where it is ignored nobody learns how a child ended.
class SupervisedSignals {
 public:
  SupervisedSignals();
  ~SupervisedSignals();  // as it was before
  SupervisedSignals(const SupervisedSignals&) = delete;
  SupervisedSignals& operator=(const SupervisedSignals&) = delete;

  const sigset_t& set() const { return set_; }

 private:
  sigset_t set_;
  sigset_t before_;
  struct sigaction child_before_ {};
};

}  // namespace lockstep::launch
