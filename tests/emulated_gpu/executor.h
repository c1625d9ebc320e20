// Runs the grid of one kernel launch, block after block, in the calling OS thread.
//
// The threads of a block run one at a time. A thread that meets a barrier or a warp intrinsic
// before the others stops there and the next one goes on, so a kernel that never synchronises runs
// as a plain loop, and one that does gets a fiber per thread.
//
// Every other launch runs its blocks and threads in reverse order: an outcome that depends on the
// order (a missing barrier, a sum by atomicAdd that should be deterministic) then changes.
//
// Code that would hang or be undefined on a GPU ends the program with a message that names the
// thread, the block and the source line: a barrier that not all threads reach, or reach at
// different lines; a warp intrinsic whose mask does not hold, or that reads a lane which does not
// take part.
#pragma once

#include <vector_types.h>

#include <functional>

namespace emulated_gpu {

struct Grid {
  dim3 grid;
  dim3 block;
  std::function<void()> thread_body;  // one call of the kernel
};

void run_grid(const Grid& grid);

}  // namespace emulated_gpu
