// Moments of the machine's monotonic clock as plain numbers, which may be sent to other processes
// of the machine and may lie in the future; and exact sleep until such a moment.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace lockstep::runtime {

using Time = std::chrono::nanoseconds;  // since the epoch of the steady clock; or a duration

inline Time now() {
  return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch());
}

// At most 30 years, because more does not fit into a Time.
inline Time from_seconds(double seconds) {
  return std::chrono::duration_cast<Time>(std::chrono::duration<double>(std::min(seconds, 1e9)));
}
inline double to_seconds(Time time) {
  return std::chrono::duration<double>(time).count();
}

// While one lives, its thread wakes up exactly when it asked to. Otherwise the kernel may let it
// sleep 50 us longer.
class ExactSleep {
 public:
  ExactSleep();
  ~ExactSleep();
  ExactSleep(const ExactSleep&) = delete;
  ExactSleep& operator=(const ExactSleep&) = delete;

  static void until(Time moment) {
    std::this_thread::sleep_until(std::chrono::steady_clock::time_point(moment));
  }

 private:
  int slack_;
};

}  // namespace lockstep::runtime
