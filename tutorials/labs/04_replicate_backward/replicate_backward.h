// Lab 04: one parameter on many devices, and its gradient. README.md says what is to be done.
#pragma once

#include <vector>

#include "engine/autograd/variable.h"

namespace lab {

// A copy of the parameter on each device, recorded in the engine's graph: backward() of whatever is
// made of the copies reaches the parameter. devices[0] is the parameter's own.
std::vector<lockstep::Variable> replicate(const lockstep::Variable& parameter,
                                          const std::vector<lockstep::Device>& devices);

}  // namespace lab
