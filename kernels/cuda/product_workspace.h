// The memory in which matrix products keep partial sums.
//
// Algorithms that cut the inner dimension among blocks of the GPU need it. Each stream has its own,
// since products on two streams of a device may run at the same time; those of one stream follow
// each other and share it. It is taken from the device's pool when a stream's first such algorithm
// runs, and kept.
#pragma once

#include <cstddef>

#include "engine/runtime/stream.h"

namespace lockstep::kernels::cuda {

// What cuBLASLt's documentation recommends for Hopper; older GPUs ask for less.
inline constexpr std::size_t kProductWorkspaceBytes = std::size_t{32} << 20;

// kProductWorkspaceBytes of the stream's device. Throws Error{Device} without memory.
void* product_workspace(runtime::Stream& stream);

}  // namespace lockstep::kernels::cuda
