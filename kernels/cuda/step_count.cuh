// How an optimizer counts its steps in the launches that make them: the block that is the last to
// have read the number of the step adds 1 to it, so that no kernel runs for that alone.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/vector.cuh"
#include "kernels/cuda/workspace.h"

namespace lockstep::kernels::cuda {

struct StepCount {
  std::int64_t* step = nullptr;
  unsigned* ticket = nullptr;  // 0 between calls of the optimizer
  unsigned num_blocks = 0;     // of all launches of a call
};

// In one thread of every block: what `step` is, and whether this thread has to count it.
struct SeenStep {
  std::int64_t step;
  bool is_last;
};

// Nobody else's write of the step can be seen here: it comes after all blocks have read.
__device__ inline SeenStep see_step(const StepCount& count) {
  const std::int64_t step = *static_cast<const volatile std::int64_t*>(count.step);
  __threadfence();
  // Wraps to 0 with the last block.
  return {step, atomicInc(count.ticket, count.num_blocks - 1) == count.num_blocks - 1};
}

// By the same thread, at any later time. REQUIRES: no other kernel of the call reads the step
// without see_step.
__device__ inline void count_step(const StepCount& count, const SeenStep& seen) {
  if (seen.is_last) *count.step = seen.step + 1;
}

// A call without an element to change is a step, too.
template <typename T>
__global__ void count_alone_kernel(T* step) {
  ++*step;
}

// The count for a call with launches of so many blocks together. Counts at once for none.
inline StepCount step_count(runtime::Stream& stream, const char* operation, std::int64_t* step,
                            std::size_t num_blocks) {
  if (num_blocks == 0) {
    launch(stream, operation, {dim3(1), dim3(1)}, count_alone_kernel<std::int64_t>, step);
    return {};
  }
  return {step, workspace_of(stream).step_ticket, static_cast<unsigned>(num_blocks)};
}

}  // namespace lockstep::kernels::cuda
