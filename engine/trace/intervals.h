// Sets of times, as sorted, disjoint, non-empty half-open intervals in nanoseconds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/trace/span.h"

namespace lockstep::trace {

struct Interval {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;

  bool operator==(const Interval&) const = default;
};

using IntervalSet = std::vector<Interval>;

// The part of interval inside window; empty (begin >= end) where they do not meet.
Interval clip(Interval interval, Interval window);

// The set that any intervals cover together: overlapping and touching ones become one.
IntervalSet union_of(std::vector<Interval> intervals);

// What both sets cover.
IntervalSet intersection_of(const IntervalSet& a, const IntervalSet& b);

std::int64_t total_ns(const IntervalSet& set);

// What the set covers inside window.
IntervalSet part_inside(const IntervalSet& set, Interval window);

// When a lane of a rank (or device) was in use inside window: the union of its spans of all
// categories but step. busy fraction = total_ns(busy_time(...)) / (window.end_ns -
// window.begin_ns).
IntervalSet busy_time(std::span<const Span> spans, int rank, Lane lane, Interval window);

}  // namespace lockstep::trace
