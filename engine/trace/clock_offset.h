// How far a clock is from another one, found out by asking that one what it shows.
//
// Clocks of two hosts run apart, by some microseconds a second where nobody sets them. So it is
// asked before and after what is timed.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep::trace {

// One question: asked and heard at times of the own clock, told by the other one in between.
struct ClockQuestion {
  std::int64_t asked_ns = 0;
  std::int64_t told_ns = 0;
  std::int64_t heard_ns = 0;
};

// How much more the other clock showed when the own one showed at_ns.
struct ClockReading {
  std::int64_t at_ns = 0;
  std::int64_t offset_ns = 0;
  std::int64_t error_ns = 0;  // the offset is wrong by at most this
};

// From the question that took the shortest time, of which the answer was told in the middle: wrong
// by at most half of that time, whatever the two ways took. REQUIRES: some.
ClockReading read_clock(std::span<const ClockQuestion> questions);

// What to add to the own clock's times for those of the other clock. All 0: it is the same clock.
struct ClockOffset {
  std::int64_t begin_ns = 0;   // the first and the last reading, by the own clock
  std::int64_t end_ns = 0;     //
  std::int64_t offset_ns = 0;  // at the end
  std::int64_t drift_ns = 0;   // how much it grew since the beginning
  std::int64_t error_ns = 0;   // at neither end it is wrong by more

  std::int64_t at(std::int64_t time_ns) const;

  bool operator==(const ClockOffset&) const = default;
};

// From a reading before and one after. Readings that agree, for all that is known of their errors,
// are no drift: then the sharper one holds, and durations stay what they are.
ClockOffset clock_offset(const ClockReading& before, const ClockReading& after);

}  // namespace lockstep::trace
