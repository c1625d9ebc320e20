// Scratch memory of the reductions, where the blocks of one launch leave what the last of them adds
// up, and of matrix products that cut the inner dimension among blocks.
//
// Each stream has its own, since two streams of a device may work at the same time; launches of
// one stream follow each other and share it. It is taken from the device's pool when a stream first
// needs it, and kept. That cannot happen while the stream is captured into a graph, so
// warm up before.
#pragma once

#include <cstddef>

#include "engine/runtime/stream.h"

namespace lockstep::kernels::cuda {

inline constexpr std::size_t kMaxPartials = 16384;
inline constexpr std::size_t kMaxColumns = 4096;  // whose sums one launch hands to the next
inline constexpr std::size_t kMaxTickets = 512;

struct Workspace {
  double* partials = nullptr;       // [kMaxPartials]: from the blocks of a launch to its last block
  double* column_sums = nullptr;    // [2 * kMaxColumns]: from a launch to the next
  double* carry = nullptr;          // [1]: from a launch to the next
  unsigned* tickets = nullptr;      // [kMaxTickets]: 0 between launches
  unsigned* step_ticket = nullptr;  // [1]: 0 between calls of an optimizer (step_count.cuh)
};

// Throws Error{State} in a capture where the stream has none yet, Error{Device} without memory.
Workspace workspace_of(runtime::Stream& stream);

// What cuBLASLt's documentation recommends for Hopper; older GPUs ask for less.
inline constexpr std::size_t kProductWorkspaceBytes = std::size_t{32} << 20;
void* product_workspace(runtime::Stream& stream);

}  // namespace lockstep::kernels::cuda
