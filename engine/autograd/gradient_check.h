// Checks an operation's gradient against central differences, in double.
#pragma once

#include <functional>
#include <vector>

#include "engine/autograd/variable.h"

namespace lockstep {

// f maps the inputs to one variable of any shape; the scalar that is differentiated is the sum of
// f's elements times fixed random weights. Inputs are float64 leaves that require gradients; they
// should stay away from kinks (ReLU at 0). Their gradients are cleared.
// Returns, per input, the Euclidean norm of analytic - numeric over the larger of their norms; 0 if
// both are zero.
// Throws Error{DType} unless all inputs are float64.
std::vector<double> check_gradients(const std::function<Variable(const std::vector<Variable>&)>& f,
                                    std::vector<Variable> inputs);

}  // namespace lockstep
