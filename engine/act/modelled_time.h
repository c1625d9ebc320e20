// Modelled time: moments of the machine's monotonic clock at which something would have happened,
// and how a thread sleeps until then.
#pragma once

#include <chrono>

namespace lockstep::act {

using Time = std::chrono::nanoseconds;  // since the epoch of the steady clock; or a length

Time now();

// At most 30 years, since more does not fit into a Time.
Time from_seconds(double seconds);
inline double to_seconds(Time time) {
  return std::chrono::duration<double>(time).count();
}

// While one lives, its thread wakes up when it asked for. The kernel may otherwise let it sleep 50
// us longer.
class ExactSleep {
 public:
  ExactSleep();
  ~ExactSleep();
  ExactSleep(const ExactSleep&) = delete;
  ExactSleep& operator=(const ExactSleep&) = delete;

  static void until(Time moment);

 private:
  int slack_;
};

}  // namespace lockstep::act
