// Helpers of the kernel tests: values in the memory of the device under test
// (tests/support/devices.h), and comparisons with plain loops in double.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "engine/core/rng.h"
#include "engine/runtime/logical_device.h"
#include "engine/tensor/tensor.h"
#include "kernels/image_calls.h"
#include "kernels/norm_calls.h"
#include "kernels/sequence_calls.h"
#include "tests/support/devices.h"
#include "tests/support/expect_error.h"

namespace lockstep::kernels {

using lockstep::testing::expect_error;
using lockstep::testing::test_device;
using lockstep::testing::test_device_type;

using Floating = ::testing::Types<float, double>;

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Sizes around the widths of vectors, warps and blocks; threads share the last one.
inline constexpr std::size_t kSizes[] = {0, 1, 3, 7, 31, 33, 1000, 150'001};

inline Backend& tested() {
  return backend(test_device_type());
}

// The compute stream of a CPU device with this many threads; on a GPU its only one.
inline Stream& stream_with(std::size_t num_threads) {
  if (test_device_type() == DeviceType::cuda) {
    return runtime::logical_device(test_device()).compute_stream();
  }
  auto& device = runtime::logical_device({DeviceType::cpu, 40 + static_cast<int>(num_threads)});
  device.set_num_threads(num_threads);
  return device.compute_stream();
}
inline Stream& stream() {
  return stream_with(1);
}

// Runs body(stream) with 1, 2 and 4 threads; once on a GPU.
template <typename Body>
void for_thread_counts(const Body& body) {
  for (const std::size_t num_threads : {1u, 2u, 4u}) {
    if (num_threads > 1 && test_device_type() == DeviceType::cuda) return;
    SCOPED_TRACE(::testing::Message() << num_threads << " threads");
    body(stream_with(num_threads));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// --- on the host

// Values in [-2, 2), the same for the same seed.
template <typename T>
std::vector<T> random_values(std::size_t num_elements, std::uint64_t seed) {
  std::vector<T> result(num_elements);
  Rng rng(seed);
  for (T& value : result) value = static_cast<T>(rng.uniform(-2, 2));
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
Grid<T> random_grid(std::size_t rows, std::size_t cols, std::size_t margin, std::uint64_t seed,
                    double factor = 1) {
  Grid<T> result(rows, cols, margin);
  Rng rng(seed);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < cols; ++j) {
      result(i, j) = static_cast<T>(factor * rng.uniform(-2, 2));
    }
  }
  return result;
}

// --- on the device under test

template <typename T>
class OnDevice {
 public:
  // skew: elements by which the first one misses the alignment of the memory.
  explicit OnDevice(const std::vector<T>& values, std::size_t skew = 0)
      : memory_(Tensor::empty({values.size() + skew}, dtype_of<T>, test_device())),
        used_(memory_.rows(skew, skew + values.size())) {
    used_.copy_from(Tensor::from(values, {values.size()}, Device{}));
  }
  explicit OnDevice(std::size_t size, T value = T(0)) : OnDevice(std::vector<T>(size, value)) {}

  TensorView view() const { return used_.view(); }
  T* data() const { return static_cast<T*>(view().data); }
  // After all work of the device; throws what a kernel found wrong.
  std::vector<T> values() const { return used_.template to_vector<T>(); }
  T value() const { return values().at(0); }

 private:
  Tensor memory_, used_;
};

template <typename T>
class GridOnDevice {
 public:
  explicit GridOnDevice(const Grid<T>& grid, std::size_t skew = 0)
      : grid_(grid), memory_(grid.values, skew) {}
  GridOnDevice(std::size_t rows, std::size_t cols, std::size_t margin = 0)
      : GridOnDevice(Grid<T>(rows, cols, margin)) {}

  MatrixView view() const {
    return {memory_.data(),          dtype_of<T>, grid_.rows,         grid_.cols,
            grid_.leading_dimension, 1,           grid_.values.size()};
  }
  // As it is now; nothing may have been written between its rows.
  Grid<T> grid() const {
    Grid<T> result = grid_;
    result.values = memory_.values();
    EXPECT_TRUE(result.margin_is_untouched());
    return result;
  }
  std::vector<T> content() const { return grid().content(); }

 private:
  Grid<T> grid_;
  OnDevice<T> memory_;
};

// y = the sum of each column of x: a layer's bias gradient.
inline void sum_columns(Stream& stream, const ConstMatrixView& x, TensorView y) {
  const auto nothing = [&](std::size_t rows) { return matrix_view(x.data, x.dtype, rows, 0); };
  tested().linear_backward(stream, {nothing(x.rows), nothing(x.cols), x, {}, {}, y});
}

// --- comparisons

// Rounding errors of one operation, relative to 1 or to the larger of the two magnitudes.
template <typename T>
inline constexpr double kTolerance = sizeof(T) == 4 ? 1e-6 : 1e-14;

// Rounding of a product's terms, relative to their sum; a GPU's library adds in its own blocks.
template <typename T>
inline const double kProductTolerance =
    (test_device_type() == DeviceType::cuda ? 4 : 1) * kTolerance<T>;

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

}  // namespace lockstep::kernels
