// Gradient clipping by the norm of all gradients.
#pragma once

#include <vector>

#include "engine/autograd/variable.h"

namespace lockstep::optim {

// Multiplies every gradient by min(1, max_norm / (norm + 1e-6)), where norm is the Euclidean norm
// of all gradients as one long vector, and returns norm. Parameters without a gradient are skipped;
// they may be on several devices. A norm that is infinite or not a number scales the gradients too,
// to zero or not a number. Waits for the devices.
// Throws Error{Usage} for a max_norm that is negative or not a number.
// Source: PyTorch clip_grad_norm_ with norm_type 2.
double clip_grad_norm(const std::vector<Variable>& parameters, double max_norm);

// The same, with the same bits, for parameters of one device. It does not wait for the device, so a
// graph can capture it. Returns the norm as float64 [] on that device. An infinite max_norm only
// measures.
// Throws Error{Usage} for a max_norm as above and for no parameters, Error{Device} for several
// devices.
Tensor clip_grad_norm_on_device(const std::vector<Variable>& parameters, double max_norm);

}  // namespace lockstep::optim
