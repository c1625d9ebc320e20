// The device of tensors that are made without naming one: cpu:0, until somebody says otherwise.
#pragma once

#include "engine/core/device.h"

namespace lockstep {

// Process-wide. Source: torch.set_default_device.
Device default_device();
// Throws Error{Device} when there is no such device.
void set_default_device(Device device);

}  // namespace lockstep
