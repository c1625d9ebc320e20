// Moments of the machine's monotonic clock as plain numbers, which may be sent to other processes
// of the machine and may lie in the future; how a thread sleeps exactly until one; and a clock
// whose time is modelled.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "engine/core/device.h"

namespace lockstep::runtime {

using Time = std::chrono::nanoseconds;  // since the epoch of the steady clock; or a length

inline Time now() {
  return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch());
}

// At most 30 years, since more does not fit into a Time.
inline Time from_seconds(double seconds) {
  return std::chrono::duration_cast<Time>(std::chrono::duration<double>(std::min(seconds, 1e9)));
}
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

// A clock for CPU devices: the timed events of their streams say by it when a device would have
// done its work, as a GPU's say when it has.
class ModelledClock {
 public:
  virtual ~ModelledClock() = default;
  // When the device would have done all that it was given, on trace::now_ns()'s clock.
  virtual std::int64_t reached_ns(Device device) const = 0;
};

// From now on streams of the CPU make timed events (Stream::record_timed); nullptr: no longer. The
// clock outlives its use.
void set_modelled_clock(const ModelledClock* clock);

}  // namespace lockstep::runtime
