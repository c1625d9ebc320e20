#include "engine/runtime/steady_time.h"

#include <sys/prctl.h>

#include <cerrno>
#include <ctime>

namespace lockstep::runtime {

ExactSleep::ExactSleep() : slack_(::prctl(PR_GET_TIMERSLACK)) {
  ::prctl(PR_SET_TIMERSLACK, 1UL);
}

ExactSleep::~ExactSleep() {
  if (slack_ > 0) ::prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(slack_));
}

void ExactSleep::until(Time moment) {
  constexpr auto kSecond = Time(std::chrono::seconds(1)).count();
  // steady_clock is CLOCK_MONOTONIC.
  const timespec then{static_cast<time_t>(moment.count() / kSecond),
                      static_cast<long>(moment.count() % kSecond)};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, nullptr) == EINTR) {
  }
}

}  // namespace lockstep::runtime
