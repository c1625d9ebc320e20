// The differentiable broadcast that replicate is made of.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/autograd/variable.h"

namespace lockstep::parallel {

// Parameters travel in pieces of about this size: one copy and one node each.
inline constexpr std::size_t kBroadcastPieceBytes = std::size_t{10} << 20;

// copies[d][i] is variables[i] on devices[d]. copies[0] shares the originals' memory; the others
// are copies: on the CPU made at the same time on their devices' workers, on CUDA packed once and
// enqueued by the caller, one copy per piece and device.
// Gradient: the sum over devices, added in the order of the devices, on devices[0]. Each piece is
//           a node of its own, so later layers are summed while earlier ones still run backward.
// REQUIRES: all variables on devices[0], devices not empty.
// Source:   torch/nn/parallel/comm.py, broadcast_coalesced and reduce_add_coalesced.
std::vector<std::vector<Variable>> broadcast_coalesced(const std::vector<Variable>& variables,
                                                       const std::vector<Device>& devices);

}  // namespace lockstep::parallel
