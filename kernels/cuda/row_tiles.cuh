// Work on the rows of a matrix: a warp takes a piece of one row at a time.
#pragma once

#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/vector.cuh"

namespace lockstep::kernels::cuda {

inline constexpr std::size_t kTileColumns = 1024;  // of a piece: 8 vectors of 4 for each lane

// A launch in which for_row_tiles reaches every piece.
inline LaunchShape row_tiles(std::size_t rows, std::size_t cols) {
  return covering(rows * ((cols + kTileColumns - 1) / kTileColumns) * kWarp, kThreads);
}

// Calls body(row, begin, end) for columns begin ... end - 1 of a row, with a whole warp: the
// arguments are the same in all its lanes.
template <typename Body>
__device__ void for_row_tiles(std::size_t rows, std::size_t cols, const Body& body) {
  const std::size_t tiles = (cols + kTileColumns - 1) / kTileColumns;
  const std::size_t num_warps = num_global_threads() / kWarp;
  for (std::size_t i = global_thread() / kWarp; i < rows * tiles; i += num_warps) {
    const std::size_t row = i / tiles;
    const std::size_t begin = i % tiles * kTileColumns;
    body(row, begin, begin + kTileColumns < cols ? begin + kTileColumns : cols);
  }
}

// Whether groups of kElements neighbours are aligned in every row.
template <std::size_t kElements, typename T>
bool has_aligned_groups(const T* data, std::size_t leading_dimension) {
  return is_aligned(data, kElements * sizeof(T)) && leading_dimension % kElements == 0;
}

// to[j] = function(from[j]) for j in [begin, end), by the lanes of a warp, kElements neighbours at
// a time with 8 loads under way. REQUIRES: end - begin is a multiple of kElements; the pointers are
// aligned for them.
template <std::size_t kElements, typename From, typename To, typename Function>
__device__ void transform_in_warp(const From* from, To* to, std::size_t begin, std::size_t end,
                                  const Function& function) {
  constexpr int kUnroll = 8;
  constexpr std::size_t kStep = kWarp * kElements;
  for (std::size_t i = begin + threadIdx.x % kWarp * kElements; i < end; i += kUnroll * kStep) {
    Vector<From, kElements> in[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (i + u * kStep < end) in[u] = load_vector<kElements>(from + i + u * kStep);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (i + u * kStep >= end) continue;
      Vector<To, kElements> out;
#pragma unroll
      for (std::size_t k = 0; k < kElements; ++k) out.at[k] = function(in[u].at[k]);
      store_vector(to + i + u * kStep, out);
    }
  }
}

}  // namespace lockstep::kernels::cuda
