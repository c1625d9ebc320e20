// What the kernels of the cross-entropy share: how rows are given to threads, and a row's formulas.
#pragma once

#include <cstdint>

#include "kernels/cuda/fault.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vector.cuh"

namespace lockstep::kernels::cuda {

// kLanes neighbouring threads of a warp work on one row, on every kLanes-th column each.
template <unsigned kLanes>
inline constexpr unsigned kRowsPerBlock = kThreads / kLanes;

// Blocks for all rows, at least one; further rows are reached in strides.
template <unsigned kLanes>
LaunchShape row_groups(std::size_t rows) {
  return covering(rows * kLanes, kThreads, 4096);
}

// Calls body(row, lane, whether the row exists) in all threads the same number of times, so that
// warps stay together for shuffles.
template <unsigned kLanes, typename Body>
__device__ void for_row_groups(std::size_t rows, const Body& body) {
  constexpr std::size_t kRows = kRowsPerBlock<kLanes>;
  for (std::size_t first = blockIdx.x * kRows; first < rows; first += gridDim.x * kRows) {
    const std::size_t row = first + threadIdx.x / kLanes;
    body(row, threadIdx.x % kLanes, row < rows);
  }
}

// A NaN need not be the maximum: it turns up in the sum.
template <typename T>
__device__ T larger(T a, T b) {
  return b > a ? b : a;
}

// How the gradient of a row's logits comes from its probabilities: 0 for a bad label.
template <typename T>
struct RowGradient {
  T factor;  // the gradient of the loss, divided by the rows for the mean
  std::int64_t label;
  bool is_good;

  __device__ T operator()(std::size_t column, T probability) const {
    const T target = static_cast<std::int64_t>(column) == label ? T(1) : T(0);
    return is_good ? (probability - target) * factor : T(0);
  }
};

}  // namespace lockstep::kernels::cuda
