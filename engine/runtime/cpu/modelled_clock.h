// A clock for CPU devices whose time is modelled: the timed events of their streams say by it when
// a device would have done its work, as a GPU's say when it has.
#pragma once

#include <cstdint>

#include "engine/core/device.h"

namespace lockstep::runtime {

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
