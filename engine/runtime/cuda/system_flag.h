// Words through which kernels of different GPUs tell each other how far they are. An emulated GPU
// (tests/emulated_gpu) puts a file of this name before it.
//
// What a thread wrote before a release store, and what the others of its block wrote before a
// __syncthreads() that precedes the store, is seen by whoever acquires the value, and by its block
// behind the next __syncthreads(). Source: PTX ISA, Memory Consistency Model.
#pragma once

namespace lockstep::runtime::cuda {

__device__ inline unsigned long long load_acquire_system(const unsigned long long* word) {
  unsigned long long value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}

__device__ inline void store_release_system(unsigned long long* word, unsigned long long value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}

// Time of day on the GPU, in steps of a microsecond or so; unlike clock64() at a known rate.
__device__ inline unsigned long long nanoseconds() {
  unsigned long long value;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value));
  return value;
}

}  // namespace lockstep::runtime::cuda
