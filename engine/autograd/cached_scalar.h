// Scalars with which backward() begins, such as the 1 of a call without an argument.
#pragma once

#include "engine/tensor/tensor.h"

namespace lockstep {

// A scalar of this value, cached by value, dtype and device: writing it in every step would take
// another kernel on a GPU. Nothing changes a gradient that others hold too. Few different values
// are expected.
Tensor cached_scalar(double value, DType dtype, Device device);

}  // namespace lockstep
