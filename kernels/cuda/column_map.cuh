// Passes over a matrix whose columns have numbers of their own, such as a mean: each thread loads
// those of its column once and then goes through 8 rows.
//
// An operation is a functor for the device with
//   auto column(column) const               what it needs to know about a column;
//   auto read(row, column) const            its inputs at one place;
//   void write(row, column, state, inputs)  computes and stores the output there.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/vector.cuh"

namespace lockstep::kernels::cuda {

template <typename Op>
__global__ void column_map_kernel(std::size_t rows, std::size_t cols, unsigned num_stripes, Op op) {
  constexpr int kRows = 8;  // of a thread; the loads of all are under way at a time
  const std::size_t column = std::size_t{blockIdx.x % num_stripes} * blockDim.x + threadIdx.x;
  if (column >= cols) return;
  const auto state = op.column(column);
  const std::size_t first = std::size_t{blockIdx.x / num_stripes} * blockDim.y * kRows;
  decltype(op.read(0, 0)) inputs[kRows];
#pragma unroll
  for (int k = 0; k < kRows; ++k) {
    const std::size_t row = first + threadIdx.y + k * blockDim.y;
    if (row < rows) inputs[k] = op.read(row, column);
  }
#pragma unroll
  for (int k = 0; k < kRows; ++k) {
    const std::size_t row = first + threadIdx.y + k * blockDim.y;
    if (row < rows) op.write(row, column, state, inputs[k]);
  }
}

// One launch; none for no elements.
template <typename Op>
void launch_column_map(runtime::Stream& stream, const char* operation, std::size_t rows,
                       std::size_t cols, Op op) {
  if (rows == 0 || cols == 0) return;
  const dim3 block(kWarp, 8);
  const std::size_t stripes = (cols + kWarp - 1) / kWarp;
  const std::size_t chunks = (rows + 63) / 64;
  launch(stream, operation, {dim3(static_cast<unsigned>(stripes * chunks)), block},
         column_map_kernel<Op>, rows, cols, static_cast<unsigned>(stripes), op);
}

}  // namespace lockstep::kernels::cuda
