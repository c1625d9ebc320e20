// When a last layer and its loss run as one kernel (linear_cross_entropy.cu).
//
// LOCKSTEP_FUSED_LOSS=off leaves them to the calls that they are made of, so that it can be told
// what the kernel is worth, and a fault of it costs no run.
#pragma once

#include <cstddef>

namespace lockstep::kernels::cuda {

inline constexpr std::size_t kFusedLossClasses = 32;       // at most: a lane holds a row's logits
inline constexpr std::size_t kFusedLossBytes = 48 * 1024;  // of weights, in a block's shared memory

}  // namespace lockstep::kernels::cuda
