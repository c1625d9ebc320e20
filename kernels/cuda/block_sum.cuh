// How threads add up, in an order that depends on nothing but the launch's shape: within a warp by
// shuffles, within a block through shared memory, among blocks by the block that finishes last.
//
// Every sum is formed in double.
#pragma once

#include "kernels/cuda/vector.cuh"
#include "kernels/cuda/workspace.h"

namespace lockstep::kernels::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;

// The sum over a warp, in its lane 0. REQUIRES: all lanes call it.
__device__ inline double warp_sum(double value) {
#pragma unroll
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_down_sync(kAllLanes, value, distance);
  }
  return value;
}

// The sum over a block of at most 1024 threads, in its thread 0. REQUIRES: all threads call it;
// blockDim.x is a multiple of 32.
__device__ inline double block_sum(double value) {
  __shared__ double warps[kWarp];
  value = warp_sum(value);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  if (threadIdx.x < kWarp) {
    value = warp_sum(threadIdx.x < blockDim.x / kWarp ? warps[threadIdx.x] : 0.0);
  }
  __syncthreads();  // the next call may overwrite `warps`
  return value;
}

// True in all threads of the block that comes last of num_blocks, and there what the others wrote
// before can be read (through volatile pointers). Leaves the ticket at 0 for the next launch.
// REQUIRES: all threads call it; those that wrote have called __threadfence() since.
__device__ inline bool is_last_block(unsigned* ticket, unsigned num_blocks) {
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    is_last = atomicAdd(ticket, 1u) == num_blocks - 1;
    if (is_last) {
      *ticket = 0;
      __threadfence();
    }
  }
  __syncthreads();
  return is_last;
}

// Adds the values of all threads of a launch of at most kMaxPartials blocks and calls
// finish(total) in one thread. REQUIRES: all threads call it, once.
template <typename Finish>
__device__ void sum_over_launch(double value, const Workspace& workspace, const Finish& finish) {
  double total = block_sum(value);
  if (gridDim.x > 1) {
    if (threadIdx.x == 0) {
      workspace.partials[blockIdx.x] = total;
      __threadfence();
    }
    if (!is_last_block(workspace.tickets, gridDim.x)) return;
    const volatile double* partials = workspace.partials;
    double mine = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x) mine += partials[i];
    total = block_sum(mine);
  }
  if (threadIdx.x == 0) finish(total);
}

}  // namespace lockstep::kernels::cuda
