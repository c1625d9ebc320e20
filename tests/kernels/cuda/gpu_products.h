// How the tests of the GPU's matrix products compare with the CPU in double: by the error of a
// result as a whole, since products are added up in another order.
#pragma once

#include <cmath>

#include "on_gpu.h"

namespace lockstep::kernels {

// |actual - expected| / |expected|, as vectors; 0 for nothing.
template <typename T>
double relative_error(const std::vector<T>& actual, const std::vector<double>& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
    const double error = static_cast<double>(actual[i]) - expected[i];
    difference += error * error;
    norm += expected[i] * expected[i];
  }
  if (std::isnan(difference)) return kInfinity;
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

template <typename T>
inline constexpr double kRelativeError = sizeof(T) == 4 ? 1e-5 : 1e-13;

}  // namespace lockstep::kernels
