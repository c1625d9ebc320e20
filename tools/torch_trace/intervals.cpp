#include "tools/torch_trace/intervals.h"

#include <algorithm>

namespace lockstep::tools {

Intervals united(Intervals any) {
  std::ranges::sort(any, {}, &Interval::begin);
  Intervals result;
  for (const Interval& next : any) {
    if (next.end <= next.begin) continue;
    if (!result.empty() && next.begin <= result.back().end) {
      result.back().end = std::max(result.back().end, next.end);
    } else {
      result.push_back(next);
    }
  }
  return result;
}

Intervals common(const Intervals& a, const Intervals& b) {
  Intervals result;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Interval both{std::max(a[i].begin, b[j].begin), std::min(a[i].end, b[j].end)};
    if (both.begin < both.end) result.push_back(both);
    a[i].end < b[j].end ? ++i : ++j;
  }
  return result;
}

Intervals without(const Intervals& a, const Intervals& b) {
  Intervals result;
  std::size_t j = 0;
  for (Interval rest : a) {
    while (j < b.size() && b[j].end <= rest.begin) ++j;
    for (std::size_t k = j; k < b.size() && b[k].begin < rest.end; ++k) {
      if (rest.begin < b[k].begin) result.push_back({rest.begin, b[k].begin});
      rest.begin = std::max(rest.begin, b[k].end);
    }
    if (rest.begin < rest.end) result.push_back(rest);
  }
  return result;
}

Intervals within(const Intervals& a, Interval window) {
  auto first = std::ranges::upper_bound(a, window.begin, {}, &Interval::end);
  Intervals result;
  for (; first != a.end() && first->begin < window.end; ++first) {
    result.push_back({std::max(first->begin, window.begin), std::min(first->end, window.end)});
  }
  return result;
}

double total_seconds(const Intervals& a) {
  double sum = 0;
  for (const Interval& interval : a) sum += interval.seconds();
  return sum;
}

}  // namespace lockstep::tools
