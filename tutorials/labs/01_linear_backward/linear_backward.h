// Lab 01: the gradients of a linear layer. README.md says what is to be done.
#pragma once

#include "engine/autograd/variable.h"

namespace lab {

// Each gradient of y = x * W^T + b, given grad_y = dL/dy [batch, out]. What they return is new: the
// engine adds gradients up where a tensor was used twice.
lockstep::Tensor gradient_of_x(const lockstep::Tensor& grad_y, const lockstep::Tensor& weight);
lockstep::Tensor gradient_of_weight(const lockstep::Tensor& grad_y, const lockstep::Tensor& x);
lockstep::Tensor gradient_of_bias(const lockstep::Tensor& grad_y);

// y = x * W^T + b, recorded in the engine's graph, so that backward() of whatever is made of y
// reaches x, W and b.
// Shapes: x [batch, in], W [out, in], b [out] -> y [batch, out]; all float64 on the CPU.
lockstep::Variable linear(const lockstep::Variable& x, const lockstep::Variable& weight,
                          const lockstep::Variable& bias);

}  // namespace lab
