// Checks an operation's gradient against central differences, in double.
#pragma once

#include <functional>
#include <vector>

#include "engine/autograd/variable.h"

namespace lockstep {

struct GradientCheckOptions {
  double step = 1e-6;           // h in (f(x + h) - f(x - h)) / 2h
  std::uint64_t seed = 0x0d1f;  // for the random direction that turns the result into a scalar
};

struct GradientCheckResult {
  // Per input:
  // analytic - numeric
  // / max(
  // analytic
  // ,
  // numeric
  // ), Euclidean norms over all elements; 0 if both are zero.
  std::vector<double> relative_errors;
  double largest() const;
};

// f maps the inputs to one variable of any shape; the scalar that is differentiated is the sum of
// f's elements times fixed random weights. Inputs are float64 leaves that require gradients; they
// should stay away from kinks (ReLU at 0). Their gradients are cleared.
// Throws Error{DType} unless all inputs are float64.
GradientCheckResult check_gradients(const std::function<Variable(const std::vector<Variable>&)>& f,
                                    std::vector<Variable> inputs,
                                    const GradientCheckOptions& options = {});

}  // namespace lockstep
