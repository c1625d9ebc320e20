// Clipping where no rank has the gradients of the whole model.
#pragma once

#include <vector>

#include "engine/autograd/variable.h"
#include "engine/comm/communicator.h"

namespace lockstep::parallel {

// Clips the gradients of `all` as optim::clip_grad_norm_on_device() does, by the norm over all
// ranks' `counted`, which holds each of the whole model's gradients once. Waits for the device.
// Every rank calls it, and gets the same norm.
Tensor clip_over_ranks(const std::vector<Variable>& counted, const std::vector<Variable>& all,
                       double max_norm, comm::Communicator& communicator, Device device);

}  // namespace lockstep::parallel
