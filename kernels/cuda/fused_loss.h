// When a last layer and its loss run as one kernel (linear_cross_entropy.cu).
//
// LOCKSTEP_FUSED_LOSS=off leaves them to the calls that they are made of, so that it can be told
// what the kernel is worth, and a fault of it costs no run.
#pragma once

#include <cstddef>

namespace lockstep::kernels::cuda {

// At most: a lane holds a row's logits.
inline constexpr std::size_t kFusedLossClasses = 32;
// Of weights, in a block's shared memory: 48 KiB, less what the kernel's sums take of it.
inline constexpr std::size_t kFusedLossBytes = 47 * 1024;
// rows * in * classes: where there is more to multiply, two products of cuBLASLt make up for being
// kernels of their own.
inline constexpr std::size_t kFusedLossWork = std::size_t{1} << 25;

}  // namespace lockstep::kernels::cuda
