// Many tensors in one launch.
//
// The pointers and sizes are the kernel's own parameter, at most 4 KiB, so that nothing is copied
// to the device before and a CUDA graph keeps them. Blocks are assigned tensor by tensor; a block
// finds its tensor by binary search. More tensors than fit take another launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/launch.h"

namespace lockstep::kernels::cuda {

// One tensor: its address, and those of others that belong to it and have the same size.
template <int kPointers>
struct TensorEntry {
  void* data[kPointers] = {};
  std::size_t num_elements = 0;  // 0: left out
};

template <int kPointersOf, int kCapacityOf>
struct TensorList {
  static constexpr int kPointers = kPointersOf;
  static constexpr int kCapacity = kCapacityOf;
  void* data[kPointers][kCapacity];
  std::size_t num_elements[kCapacity];
  unsigned first_block[kCapacity];  // each tensor's first
  unsigned count;
};

inline constexpr int kSmallList = 16;
// As many tensors as fit into 4 KiB with 256 bytes of other parameters.
template <int kPointers>
inline constexpr int kLargeList = (4096 - 256) / (8 * kPointers + 12);

// The part of a tensor that a block works on, in elements.
struct Slice {
  unsigned tensor;
  std::size_t begin;
  std::size_t end;
};

template <typename List>
__device__ Slice slice_of_block(const List& list, std::size_t elements_per_block) {
  unsigned low = 0;
  unsigned high = list.count;
  while (high - low > 1) {
    const unsigned middle = (low + high) / 2;
    (list.first_block[middle] <= blockIdx.x ? low : high) = middle;
  }
  const std::size_t begin = (blockIdx.x - list.first_block[low]) * elements_per_block;
  const std::size_t size = list.num_elements[low];
  return {low, begin, begin + elements_per_block < size ? begin + elements_per_block : size};
}

// The elements of a slice that one thread holds: every kThreads-th group of kWidth<T>.
template <typename T>
class ThreadPart {
 public:
  static constexpr std::size_t kElementsPerBlock = kThreads * kWidth<T>;

  __device__ explicit ThreadPart(const Slice& slice)
      : first_(slice.begin + threadIdx.x), end_(slice.end) {}

  __device__ Vector<T> load(const T* from) const {
    Vector<T> values = {};
    for_each([&](std::size_t k, std::size_t i) { values.at[k] = from[i]; });
    return values;
  }
  __device__ void store(T* to, const Vector<T>& values) const {
    for_each([&](std::size_t k, std::size_t i) { to[i] = values.at[k]; });
  }

 private:
  template <typename Body>
  __device__ void for_each(const Body& body) const {
#pragma unroll
    for (std::size_t k = 0; k < kWidth<T>; ++k) {
      if (first_ + k * kThreads < end_) body(k, first_ + k * kThreads);
    }
  }

  std::size_t first_;
  std::size_t end_;
};

inline std::size_t num_blocks_of(std::size_t num_elements, std::size_t elements_per_block) {
  return (num_elements + elements_per_block - 1) / elements_per_block;
}

// Calls launch(list, num_blocks, is_last) with lists that hold entry(0) ... entry(count - 1): one
// small list, or as few large ones as are needed. None for no elements.
template <int kPointers, typename Entry, typename Launch>
void for_tensor_lists(std::size_t count, std::size_t elements_per_block, const Entry& entry,
                      const Launch& launch) {
  const auto run = [&]<int kCapacity>() {
    TensorList<kPointers, kCapacity> list;
    list.count = 0;
    unsigned num_blocks = 0;
    const auto flush = [&](bool is_last) {
      if (list.count > 0) launch(list, num_blocks, is_last);
      list.count = 0;
      num_blocks = 0;
    };
    for (std::size_t i = 0; i < count; ++i) {
      const TensorEntry<kPointers> next = entry(i);
      if (next.num_elements == 0) continue;
      if (list.count == kCapacity) flush(false);
      for (int p = 0; p < kPointers; ++p) list.data[p][list.count] = next.data[p];
      list.num_elements[list.count] = next.num_elements;
      list.first_block[list.count] = num_blocks;
      ++list.count;
      num_blocks += static_cast<unsigned>(num_blocks_of(next.num_elements, elements_per_block));
    }
    flush(true);
  };
  if (count <= kSmallList) return run.template operator()<kSmallList>();
  run.template operator()<kLargeList<kPointers>>();
}

}  // namespace lockstep::kernels::cuda
