// Checks every call into CUDA, so that a failure names the call and CUDA's own words.
#pragma once

#include <cuda_runtime_api.h>

namespace lockstep::runtime::cuda {

// Throws Error{Cuda}: "[cudaMalloc] failed: out of memory (cudaErrorMemoryAllocation)".
[[noreturn]] void fail_call(const char* call, cudaError_t error);

inline void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) [[unlikely]] {
    fail_call(call, error);
  }
}

// For destructors, which never throw: the next checked call finds the error.
inline void ignore(cudaError_t) noexcept {}

}  // namespace lockstep::runtime::cuda

// CUDA_CHECK(cudaEventRecord(event, stream));
#define CUDA_CHECK(call) ::lockstep::runtime::cuda::check((call), #call)
