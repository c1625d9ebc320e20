// Lab 01: the gradients of a linear layer. README.md says what is to be done.
#pragma once

#include "engine/autograd/variable.h"

namespace lab {

// y = x * W^T + b, recorded in the engine's graph, so that backward() of whatever is made of y
// reaches x, W and b.
// Shapes: x [batch, in], W [out, in], b [out] -> y [batch, out]; all float64 on the CPU.
lockstep::Variable linear(const lockstep::Variable& x, const lockstep::Variable& weight,
                          const lockstep::Variable& bias);

}  // namespace lab
