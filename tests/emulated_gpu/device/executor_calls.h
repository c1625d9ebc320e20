// Calls from device code to the executor. The CUDA names are in block.h and warp.h.
#pragma once

#include <vector_types.h>

#include <array>
#include <cstddef>

// Set for the thread that runs.
extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;

namespace emulated_gpu::device {

struct SourceLine {
  const char* file;
  int line;
};

void wait_for_block(SourceLine where);

// The values with which the lanes of a warp came to an intrinsic.
struct WarpValues {
  static constexpr std::size_t kMaxBytes = 16;
  struct alignas(16) Value {
    std::array<std::byte, kMaxBytes> bytes;
  };
  unsigned lanes = 0;  // bit i: lane i took part
  std::array<Value, 32> values;
};

// Waits until every living lane of the mask is here. The reference is good until the lane's next
// warp intrinsic. intrinsic: its name; all the lanes must call the same one.
const WarpValues& exchange_in_warp(const char* intrinsic, unsigned mask, const void* value,
                                   std::size_t num_bytes, SourceLine where);

unsigned lane_index();

// Ends the program with the calling thread's name.
[[noreturn]] void fail_thread(SourceLine where, const char* message);

}  // namespace emulated_gpu::device
