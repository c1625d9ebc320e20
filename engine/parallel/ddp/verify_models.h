// The ranks' models must match before anything is averaged.
#pragma once

#include "engine/comm/communicator.h"
#include "engine/nn/module.h"

namespace lockstep::parallel {

// Compares the number of parameters, then their shapes, dtypes and whether they require gradients,
// over all ranks; then the same for buffers. Every rank reaches the same verdict: Error{Comm} that
// names the first rank that differs from rank 0, and the first parameter (by rank 0's name).
void verify_models_match(const nn::Module& module, comm::Communicator& communicator);

}  // namespace lockstep::parallel
