// Helpers of the kernel tests: arrays with views, and a comparison with plain loops in double.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/core/rng.h"
#include "engine/runtime/logical_device.h"
#include "kernels/backend.h"
#include "tests/support/expect_error.h"

namespace lockstep::kernels {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Sizes around the widths of vectors and blocks; the last one is shared by several threads.
inline constexpr std::size_t kSizes[] = {0, 1, 3, 7, 31, 33, 1000, 150'001};

// The CPU backend on a device with 1, 2 or 4 threads.
inline constexpr std::size_t kThreadCounts[] = {1, 2, 4};
inline Stream& stream_with(std::size_t num_threads) {
  auto& device = runtime::logical_device({DeviceType::cpu, 40 + static_cast<int>(num_threads)});
  device.set_num_threads(num_threads);
  return device.compute_stream();
}
inline Backend& cpu() {
  return backend(DeviceType::cpu);
}

// num_elements values and their view.
template <typename T>
struct Array {
  std::vector<T> values;

  explicit Array(std::size_t num_elements, T value = T(0)) : values(num_elements, value) {}
  explicit Array(std::vector<T> content) : values(std::move(content)) {}
  TensorView view() { return {values.data(), dtype_of<T>, values.size()}; }
  T& operator[](std::size_t i) { return values[i]; }
  std::size_t size() const { return values.size(); }
};

// Values in [-2, 2), the same for the same seed.
template <typename T>
Array<T> random_array(std::size_t num_elements, std::uint64_t seed) {
  Array<T> result(num_elements);
  Rng rng(seed);
  for (T& value : result.values) value = static_cast<T>(rng.uniform(-2, 2));
  return result;
}

// A matrix inside a wider one; the elements between its rows are kMargin and must stay so.
template <typename T>
struct Grid {
  static constexpr T kMargin = T(77);
  std::size_t rows, cols, leading_dimension;
  std::vector<T> values;

  Grid(std::size_t r, std::size_t c, std::size_t margin = 0)
      : rows(r), cols(c), leading_dimension(c + margin), values(r * leading_dimension, kMargin) {}
  T& operator()(std::size_t i, std::size_t j) { return values[i * leading_dimension + j]; }
  const T& operator()(std::size_t i, std::size_t j) const {
    return values[i * leading_dimension + j];
  }
  MatrixView view() {
    return {values.data(), dtype_of<T>, rows, cols, leading_dimension, 1, values.size()};
  }
  const T* row(std::size_t i) const { return values.data() + i * leading_dimension; }
  bool margin_is_untouched() const {
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = cols; j < leading_dimension; ++j) {
        if ((*this)(i, j) != kMargin) return false;
      }
    }
    return true;
  }
  std::vector<T> content() const {
    std::vector<T> result;
    for (std::size_t i = 0; i < rows; ++i) result.insert(result.end(), row(i), row(i) + cols);
    return result;
  }
};

template <typename T>
Grid<T> random_grid(std::size_t rows, std::size_t cols, std::size_t margin, std::uint64_t seed) {
  Grid<T> result(rows, cols, margin);
  Rng rng(seed);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < cols; ++j) result(i, j) = static_cast<T>(rng.uniform(-2, 2));
  }
  return result;
}

// Rounding errors of one operation, relative to 1 or to the larger of the two magnitudes.
template <typename T>
inline constexpr double kTolerance = sizeof(T) == 4 ? 1e-6 : 1e-14;

// Each |actual - expected| <= tolerance * max(scale, |expected|); NaN and infinities must agree.
template <typename T>
void expect_close(const std::vector<T>& actual, const std::vector<double>& expected,
                  double tolerance = kTolerance<T>, double scale = 1) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const auto found = static_cast<double>(actual[i]);
    if (!std::isfinite(expected[i])) {
      ASSERT_TRUE(std::isnan(expected[i]) ? std::isnan(found) : found == expected[i])
          << "element " << i << ": " << found << ", expected " << expected[i];
      continue;
    }
    const double bound = tolerance * std::max(scale, std::fabs(expected[i]));
    // Written so that a NaN fails.
    if (!(std::fabs(found - expected[i]) <= bound)) {
      FAIL() << "element " << i << " is " << found << ", expected " << expected[i] << " within "
             << bound;
    }
  }
}

// Runs body() for every thread count, naming it in failures.
template <typename Body>
void for_thread_counts(const Body& body) {
  for (const std::size_t num_threads : kThreadCounts) {
    SCOPED_TRACE(::testing::Message() << num_threads << " threads");
    body(stream_with(num_threads));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

using lockstep::testing::expect_error;

using Floating = ::testing::Types<float, double>;

}  // namespace lockstep::kernels
