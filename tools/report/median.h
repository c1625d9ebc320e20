// The median of repeated measurements, and how far they spread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep::tools {

// Of an even number of values the mean of the middle two. REQUIRES: some.
inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// The interquartile range as a share of the median. REQUIRES: some values, with a positive median.
inline double spread(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t quarter = values.size() / 4;
  return (values[values.size() - 1 - quarter] - values[quarter]) / median(values);
}

}  // namespace lockstep::tools
