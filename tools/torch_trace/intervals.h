// Sets of time: unions, intersections and differences of intervals.
#pragma once

#include <vector>

namespace lockstep::tools {

// [begin, end), in seconds.
struct Interval {
  double begin = 0;
  double end = 0;

  double seconds() const { return end - begin; }
};

// Sorted, disjoint, none of them empty.
using Intervals = std::vector<Interval>;

// The union of intervals in any order, which may overlap or be empty.
Intervals united(Intervals any);

// The time that lies in both.
Intervals common(const Intervals& a, const Intervals& b);

// The time of `a` that does not lie in `b`.
Intervals without(const Intervals& a, const Intervals& b);

// The part of `a` within the window, found by binary search.
Intervals within(const Intervals& a, Interval window);

double total_seconds(const Intervals& a);

}  // namespace lockstep::tools
