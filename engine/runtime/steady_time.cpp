#include "engine/runtime/steady_time.h"

#include <sys/prctl.h>

namespace lockstep::runtime {

ExactSleep::ExactSleep() : slack_(::prctl(PR_GET_TIMERSLACK)) {
  ::prctl(PR_SET_TIMERSLACK, 1UL);
}

ExactSleep::~ExactSleep() {
  if (slack_ > 0) ::prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(slack_));
}

}  // namespace lockstep::runtime
