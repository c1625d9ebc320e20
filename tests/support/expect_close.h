// Comparisons of tensors, and tensors to compare.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/tensor/tensor.h"
#include "tests/support/devices.h"

namespace lockstep::testing {

// |actual - reference| <= absolute + relative * |reference|, element by element.
struct Tolerance {
  double relative = 0;
  double absolute = 0;
};

inline constexpr Tolerance kExact{0, 0};
inline constexpr Tolerance kFloat32{1e-5, 1e-6};
inline constexpr Tolerance kFloat64{1e-12, 1e-13};

inline void expect_close(const std::vector<double>& actual, const std::vector<double>& reference,
                         const Tolerance& tolerance) {
  ASSERT_EQ(actual.size(), reference.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double allowed = tolerance.absolute + tolerance.relative * std::abs(reference[i]);
    if (std::isnan(actual[i]) && std::isnan(reference[i])) continue;
    if (actual[i] == reference[i]) continue;  // infinities, too
    // Written so that a NaN on one side fails.
    if (!(std::abs(actual[i] - reference[i]) <= allowed)) {
      ADD_FAILURE() << "element " << i << ": " << actual[i] << ", expected " << reference[i]
                    << " within " << allowed;
      return;
    }
  }
}

// Also compares the shapes.
inline void expect_close(const Tensor& actual, const Tensor& reference,
                         const Tolerance& tolerance) {
  ASSERT_TRUE(actual.defined());
  ASSERT_TRUE(reference.defined());
  EXPECT_EQ(to_string(actual.shape()), to_string(reference.shape()));
  expect_close(actual.to_vector<double>(), reference.to_vector<double>(), tolerance);
}

inline void expect_close(const Tensor& actual, const std::vector<double>& reference,
                         const Tolerance& tolerance) {
  ASSERT_TRUE(actual.defined());
  expect_close(actual.to_vector<double>(), reference, tolerance);
}

// Uniform in [-1, 1), the same for the same seed on every machine.
inline Tensor random_tensor(const Shape& shape, std::uint64_t seed, DType dtype = DType::float64,
                            Device device = test_device()) {
  Rng rng(seed);
  return Tensor::uniform(shape, -1.0, 1.0, rng, dtype, device);
}

}  // namespace lockstep::testing
