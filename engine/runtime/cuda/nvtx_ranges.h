// Spans as ranges in NVIDIA's profilers.
#pragma once

namespace lockstep::runtime::cuda {

// Under a profiler (Nsight sets NVTX_INJECTION64_PATH), or with LOCKSTEP_NVTX=1, every ScopedSpan
// is an NVTX range of its thread: nsys and ncu then show forward, backward, all-reduce beside the
// kernels. Does nothing otherwise, and after the first call.
void enable_nvtx_ranges();

}  // namespace lockstep::runtime::cuda
