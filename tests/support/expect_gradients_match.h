// The one gradient check that all operations share.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "engine/autograd/gradient_check.h"
#include "tests/support/devices.h"
#include "tests/support/expect_close.h"

namespace lockstep::testing {

using Operation = std::function<Variable(const std::vector<Variable>&)>;

inline constexpr double kGradientTolerance = 1e-6;

// Compares the gradients of op with central differences in double, norm-wise, for inputs that
// require gradients. Every gradient has to be of a size that can be compared at all.
inline void expect_gradients_match(const Operation& op, const std::vector<Variable>& inputs) {
  const std::vector<double> errors = check_gradients(op, inputs);
  ASSERT_EQ(errors.size(), inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_LE(errors[i], kGradientTolerance) << "input " << i;
  }
}

// A float64 leaf of random values that requires a gradient.
inline Variable random_leaf(const Shape& shape, std::uint64_t seed, Device device = test_device()) {
  return Variable(random_tensor(shape, seed, DType::float64, device), RequiresGrad::yes);
}

}  // namespace lockstep::testing
