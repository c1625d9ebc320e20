// Before ranks train together: their models match, and hold the same values.
#pragma once

#include <vector>

#include "engine/comm/communicator.h"
#include "engine/nn/module.h"

namespace lockstep::parallel {

// Compares the number of parameters, then their shapes, dtypes and whether they require gradients,
// over all ranks; then the same for buffers. Every rank reaches the same verdict: Error{Comm} that
// names the first rank that differs from rank 0, and the first parameter (by rank 0's name).
// Afterwards every rank's parameters and buffers hold rank 0's values.
void agree_on_model(const nn::Module& module, comm::Communicator& communicator);

// Rank 0's values for all of these, in one call. A tensor may be listed twice, as the buffers of a
// module that stands in the model twice are: it travels once.
void broadcast_from_rank_0(const std::vector<Tensor>& tensors, comm::Communicator& communicator);

}  // namespace lockstep::parallel
