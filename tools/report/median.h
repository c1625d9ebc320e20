// The median of what was measured.
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

}  // namespace lockstep::tools
