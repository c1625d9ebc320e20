// Requests that a test can make of the emulated GPUs beyond CUDA's API.
//
// Environment, read once: LOCKSTEP_EMULATED_GPUS (2), LOCKSTEP_EMULATED_MEMORY_MIB of each (4096),
// LOCKSTEP_EMULATED_PEER_ACCESS=none (GPUs cannot read each other's memory) or refused (they are
// said to, and enabling it fails), LOCKSTEP_EMULATED_KERNELS=none (the build has no code for these
// GPUs), LOCKSTEP_EMULATED_DRIVER: the newest CUDA that the driver serves (12040 is 12.4; 0: no
// driver is installed); LOCKSTEP_EMULATED_DEADLOCK_SECONDS (20): a call that waits so long for a
// GPU ends the program. As on hardware, CUDA_MODULE_LOADING=EAGER loads kernels before their first
// launch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace emulated_gpu {

// Makes the next kernel launched on the stream fail when its turn comes, like a kernel that writes
// to a wrong address: from then on its GPU answers every call with `error`.
void fail_next_kernel(cudaStream_t stream, cudaError_t error = cudaErrorIllegalAddress);

// Repairs GPUs that failed, forgets the calling thread's last error, and cancels requested failures
// that have not happened yet.
void clear_faults();

// Makes cudaMalloc return cudaErrorMemoryAllocation once so many further bytes are used up.
void fail_allocations_after(std::size_t num_bytes);

// Device memory that is allocated now, on all GPUs.
std::size_t num_allocated_bytes();

// True if some call made a context on the GPU, which takes half a gigabyte on hardware. Any call
// makes one on the thread's current GPU, which is GPU 0 until cudaSetDevice names another.
bool has_context(int gpu);

}  // namespace emulated_gpu
