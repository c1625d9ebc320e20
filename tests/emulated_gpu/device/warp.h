// Intrinsics among the 32 lanes of a warp.
//
// A lane waits until all living lanes of the mask have come. To read a lane that is not there (it
// has exited, is beyond the block's end or outside the mask) is undefined on a GPU, and ends the
// program here.
#pragma once

#include <cstring>
#include <type_traits>

#include "tests/emulated_gpu/device/executor_calls.h"

namespace emulated_gpu::device {

template <typename T>
T shuffle(const char* intrinsic, unsigned mask, T value, unsigned source, SourceLine where) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= WarpValues::kMaxBytes);
  const WarpValues& met = exchange_in_warp(intrinsic, mask, &value, sizeof(T), where);
  if ((met.lanes >> source & 1u) == 0) {
    fail_thread(where, "reads, by a warp shuffle, a lane that does not take part in it");
  }
  T result;
  std::memcpy(static_cast<void*>(&result), &met.values[source], sizeof(T));
  return result;
}

}  // namespace emulated_gpu::device

// `source` counts from the first lane of the lane's group of `width` lanes.
template <typename T>
T __shfl_sync(unsigned mask, T value, unsigned source, unsigned width = 32,
              const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const unsigned lane = emulated_gpu::device::lane_index() / width * width + source % width;
  return emulated_gpu::device::shuffle("__shfl_sync", mask, value, lane, {file, line});
}

// A lane beyond the warp's end reads itself.
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, const char* file = __builtin_FILE(),
                   int line = __builtin_LINE()) {
  const unsigned lane = emulated_gpu::device::lane_index();
  const unsigned source = lane + delta < 32 ? lane + delta : lane;
  return emulated_gpu::device::shuffle("__shfl_down_sync", mask, value, source, {file, line});
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, unsigned lane_mask, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  const unsigned source = emulated_gpu::device::lane_index() ^ lane_mask;
  return emulated_gpu::device::shuffle("__shfl_xor_sync", mask, value, source, {file, line});
}

// A bit for each lane of the mask whose predicate is not 0.
inline unsigned __ballot_sync(unsigned mask, int predicate, const char* file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
  const emulated_gpu::device::WarpValues& met = emulated_gpu::device::exchange_in_warp(
      "__ballot_sync", mask, &predicate, sizeof(predicate), {file, line});
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    int vote = 0;
    if ((met.lanes >> lane & 1u) != 0) std::memcpy(&vote, &met.values[lane], sizeof(vote));
    if (vote != 0) votes |= 1u << lane;
  }
  return votes;
}

inline void __syncwarp(unsigned mask = 0xFFFFFFFFu, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  emulated_gpu::device::exchange_in_warp("__syncwarp", mask, nullptr, 0, {file, line});
}
