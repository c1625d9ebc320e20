#include "engine/trace/intervals.h"

#include <algorithm>
#include <utility>

namespace lockstep::trace {

Interval clip(Interval interval, Interval window) {
  return {std::max(interval.begin_ns, window.begin_ns), std::min(interval.end_ns, window.end_ns)};
}

IntervalSet union_of(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](Interval a, Interval b) { return a.begin_ns < b.begin_ns; });
  IntervalSet set;
  for (const Interval interval : intervals) {
    if (interval.begin_ns >= interval.end_ns) {
      continue;
    }
    if (!set.empty() && interval.begin_ns <= set.back().end_ns) {
      set.back().end_ns = std::max(set.back().end_ns, interval.end_ns);
    } else {
      set.push_back(interval);
    }
  }
  return set;
}

IntervalSet intersection_of(const IntervalSet& a, const IntervalSet& b) {
  IntervalSet common;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Interval part = clip(a[i], b[j]);
    if (part.begin_ns < part.end_ns) {
      common.push_back(part);
    }
    if (a[i].end_ns < b[j].end_ns) {
      ++i;
    } else {
      ++j;
    }
  }
  return common;
}

std::int64_t total_ns(const IntervalSet& set) {
  std::int64_t total = 0;
  for (const Interval interval : set) {
    total += interval.end_ns - interval.begin_ns;
  }
  return total;
}

IntervalSet part_inside(const IntervalSet& set, Interval window) {
  const auto first = std::partition_point(set.begin(), set.end(), [&](const Interval& interval) {
    return interval.end_ns <= window.begin_ns;
  });
  IntervalSet part;
  for (auto it = first; it != set.end() && it->begin_ns < window.end_ns; ++it) {
    part.push_back(clip(*it, window));
  }
  return part;
}

IntervalSet busy_time(std::span<const Span> spans, int rank, Lane lane, Interval window) {
  std::vector<Interval> intervals;
  for (const Span& span : spans) {
    if (span.rank == rank && span.lane == lane && span.category != Category::step) {
      intervals.push_back(clip({span.begin_ns, span.end_ns}, window));
    }
  }
  return union_of(std::move(intervals));
}

}  // namespace lockstep::trace
