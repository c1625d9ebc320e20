// CUDA's device language for a C++ compiler: `g++ -x c++ -include tests/emulated_gpu/simt.h a.cu`.
//
// Functions of a kernel become ordinary ones; device/ has what they may call. A kernel's static
// __shared__ arrays become thread_local, because a block runs in one OS thread (executor.h).
#pragma once

// First: the toolkit's headers define the keywords their own way for a host compiler.
#include <cuda_runtime.h>

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __launch_bounds__
#undef __grid_constant__
#undef __forceinline__
#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local
#define __constant__ static
#define __launch_bounds__(...)
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))

// Kernels say #pragma unroll; and what nvcc sees to be initialised this compiler sees not always.
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "tests/emulated_gpu/device/atomics.h"
#include "tests/emulated_gpu/device/block.h"
#include "tests/emulated_gpu/device/math.h"
#include "tests/emulated_gpu/device/warp.h"
