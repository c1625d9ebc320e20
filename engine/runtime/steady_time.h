// Moments of the machine's monotonic clock as plain numbers, which may be sent to other processes
// of the machine and may lie in the future, and how a thread sleeps exactly until one.
#pragma once

#include <chrono>

namespace lockstep::runtime {

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

}  // namespace lockstep::runtime
