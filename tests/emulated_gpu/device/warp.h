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

// Bit i: the predicate of lane i, for the lanes that take part.
inline unsigned ballot(const char* intrinsic, unsigned mask, int predicate, SourceLine where,
                       unsigned* lanes = nullptr) {
  const WarpValues& met = exchange_in_warp(intrinsic, mask, &predicate, sizeof(int), where);
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    int its_predicate = 0;
    if ((met.lanes >> lane & 1u) != 0) std::memcpy(&its_predicate, &met.values[lane], sizeof(int));
    if (its_predicate != 0) bits |= 1u << lane;
  }
  if (lanes != nullptr) *lanes = met.lanes;
  return bits;
}

}  // namespace emulated_gpu::device

// The warp is cut into segments of `width` lanes; a lane outside its segment's range reads itself.

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize,
              const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const unsigned size = static_cast<unsigned>(width);
  const unsigned first = emulated_gpu::device::lane_index() / size * size;
  return emulated_gpu::device::shuffle("__shfl_sync", mask, value,
                                       first + static_cast<unsigned>(source) % size, {file, line});
}

template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                 const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const unsigned size = static_cast<unsigned>(width);
  const unsigned lane = emulated_gpu::device::lane_index();
  const unsigned source = lane % size >= delta ? lane - delta : lane;
  return emulated_gpu::device::shuffle("__shfl_up_sync", mask, value, source, {file, line});
}

template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                   const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const unsigned size = static_cast<unsigned>(width);
  const unsigned lane = emulated_gpu::device::lane_index();
  const unsigned source = lane % size + delta < size ? lane + delta : lane;
  return emulated_gpu::device::shuffle("__shfl_down_sync", mask, value, source, {file, line});
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize,
                  const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const unsigned size = static_cast<unsigned>(width);
  const unsigned lane = emulated_gpu::device::lane_index();
  const unsigned partner = lane ^ static_cast<unsigned>(lane_mask);
  // A lane may read earlier segments, but not later ones.
  const unsigned source = partner < (lane / size + 1) * size ? partner : lane;
  return emulated_gpu::device::shuffle("__shfl_xor_sync", mask, value, source, {file, line});
}

inline unsigned __ballot_sync(unsigned mask, int predicate, const char* file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
  return emulated_gpu::device::ballot("__ballot_sync", mask, predicate, {file, line});
}

inline int __any_sync(unsigned mask, int predicate, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
  return emulated_gpu::device::ballot("__any_sync", mask, predicate, {file, line}) != 0;
}

inline int __all_sync(unsigned mask, int predicate, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
  unsigned lanes = 0;
  const unsigned bits =
      emulated_gpu::device::ballot("__all_sync", mask, predicate, {file, line}, &lanes);
  return bits == lanes;
}

inline void __syncwarp(unsigned mask = 0xFFFFFFFFu, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  emulated_gpu::device::exchange_in_warp("__syncwarp", mask, nullptr, 0, {file, line});
}

// Every lane that has not exited. On a GPU it may be any subset with the caller in it.
inline unsigned __activemask() {
  return emulated_gpu::device::living_lanes();
}
