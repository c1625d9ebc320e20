#include "engine/launch/supervised_signals.h"

#include <initializer_list>

namespace lockstep::launch {

SupervisedSignals::SupervisedSignals() {
  sigemptyset(&set_);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) {
    sigaddset(&set_, number);
  }
  struct sigaction hang_up {};
  ::sigaction(SIGHUP, nullptr, &hang_up);
  if (hang_up.sa_handler == SIG_IGN) sigdelset(&set_, SIGHUP);
  ::sigprocmask(SIG_BLOCK, &set_, &before_);
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &standard, &child_before_);
}

SupervisedSignals::~SupervisedSignals() {
  ::sigaction(SIGCHLD, &child_before_, nullptr);
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace lockstep::launch
