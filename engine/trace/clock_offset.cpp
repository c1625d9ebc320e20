#include "engine/trace/clock_offset.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace lockstep::trace {

ClockReading read_clock(std::span<const ClockQuestion> questions) {
  const ClockQuestion& best = *std::min_element(
      questions.begin(), questions.end(), [](const ClockQuestion& a, const ClockQuestion& b) {
        return a.heard_ns - a.asked_ns < b.heard_ns - b.asked_ns;
      });
  const std::int64_t took_ns = best.heard_ns - best.asked_ns;
  const std::int64_t middle_ns = best.asked_ns + took_ns / 2;
  return {middle_ns, best.told_ns - middle_ns, (took_ns + 1) / 2};
}

std::int64_t ClockOffset::at(std::int64_t time_ns) const {
  if (drift_ns == 0) return offset_ns;
  const double since = static_cast<double>(time_ns - begin_ns);
  const double share = std::clamp(since / static_cast<double>(end_ns - begin_ns), 0.0, 1.0);
  return offset_ns - drift_ns + std::llround(share * static_cast<double>(drift_ns));
}

ClockOffset clock_offset(const ClockReading& before, const ClockReading& after) {
  const std::int64_t difference_ns = after.offset_ns - before.offset_ns;
  if (std::abs(difference_ns) > before.error_ns + after.error_ns) {
    return {before.at_ns, after.at_ns, after.offset_ns, difference_ns,
            std::max(before.error_ns, after.error_ns)};
  }
  const bool is_first_sharper = before.error_ns < after.error_ns;
  const ClockReading& sharper = is_first_sharper ? before : after;
  const ClockReading& other = is_first_sharper ? after : before;
  return {before.at_ns, after.at_ns, sharper.offset_ns, 0,
          std::abs(difference_ns) + other.error_ns};
}

}  // namespace lockstep::trace
