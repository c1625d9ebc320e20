// Sums over threads, in an order that only depends on the launch's shape: within a warp by
// shuffles, within a block through shared memory, among blocks by the block that finishes last.
//
// Every sum is formed in double.
#pragma once

#include <algorithm>

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/launch.h"

namespace lockstep::kernels::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;

// The sum over a warp, in lane 0. REQUIRES: all lanes call it.
__device__ inline double warp_sum(double value) {
#pragma unroll
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_down_sync(kAllLanes, value, distance);
  }
  return value;
}

// The sum, or the largest value, over a warp, in all its lanes. A NaN is not the largest. REQUIRES:
// all lanes call it.
__device__ inline double sum_in_all_lanes(double value) {
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}
template <typename T>
__device__ T largest_in_all_lanes(T value) {
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, value, distance);
    value = other > value ? other : value;
  }
  return value;
}

// The sum over a block of at most 1024 threads, in thread 0. REQUIRES: all threads call it;
// blockDim.x is a multiple of 32.
__device__ inline double block_sum(double value) {
  __shared__ double warps[kWarp];
  value = warp_sum(value);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  if (threadIdx.x < kWarp) {
    value = warp_sum(threadIdx.x < blockDim.x / kWarp ? warps[threadIdx.x] : 0.0);
  }
  __syncthreads();  // the next call may overwrite `warps`
  return value;
}

// True in all threads of the block that finishes last of num_blocks, where the other blocks'
// earlier writes can be read (through volatile pointers). Leaves the ticket at 0 for the next
// launch.
// REQUIRES: all threads call it.
__device__ inline bool is_last_block(unsigned* ticket, unsigned num_blocks) {
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    __threadfence();  // makes the block's writes, seen at the barrier, precede the ticket
    is_last = atomicAdd(ticket, 1u) == num_blocks - 1;
    if (is_last) {
      *ticket = 0;
      __threadfence();
    }
  }
  __syncthreads();
  return is_last;
}

// Adds the values of all threads of a launch of at most kMaxPartials blocks and calls
// finish(total) in one thread. REQUIRES: all threads call it, once.
template <typename Finish>
__device__ void sum_over_launch(double value, const Workspace& workspace, const Finish& finish) {
  double total = block_sum(value);
  if (gridDim.x > 1) {
    if (threadIdx.x == 0) workspace.partials[blockIdx.x] = total;
    if (!is_last_block(workspace.tickets, gridDim.x)) return;
    const volatile double* partials = workspace.partials;
    double mine = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x) mine += partials[i];
    total = block_sum(mine);
  }
  if (threadIdx.x == 0) finish(total);
}

template <typename T, typename Op, typename... Inputs>
__global__ void reduce_kernel(T* y, std::size_t num_elements, double divisor, Workspace workspace,
                              Op op, Inputs... x) {
  double sum = 0;
  for_steps<4>(global_thread(), num_elements, num_global_threads(),
               [&](std::size_t i) { sum += op(number(x[i])...); });
  sum_over_launch(sum, workspace, [=](double total) { *y = static_cast<T>(total / divisor); });
}

// *y = sum over i of op(x0[i], x1[i], ...) / divisor, in one launch and in double; y is set even if
// there are no elements. A block takes 4096 elements or more.
template <typename T, typename Op, typename... Inputs>
void launch_reduce(runtime::Stream& stream, const char* operation, T* y, std::size_t num_elements,
                   double divisor, Op op, const Inputs*... x) {
  constexpr std::size_t kPerThread = 16;
  launch(stream, operation, covering((num_elements + kPerThread - 1) / kPerThread, kThreads, 1024),
         reduce_kernel<T, Op, const Inputs*...>, y, num_elements, divisor, workspace_of(stream), op,
         x...);
}

// Sums over the rows of a matrix, for each column, in one launch and in double.
//
// A block adds the rows of one chunk for a stripe of 32 columns: its 32 x 8 threads read 64 rows at
// a time. If a stripe has several chunks, the last of their blocks adds their sums.
//
// An operation is a functor for the device with
//   kValues                                how many sums a column has (1 or 2);
//   void add(row, column, sums) const      adds one element to double sums[kValues];
//   void finish(column, totals) const      called once per column.

inline constexpr unsigned kStripe = 32;     // columns of a block
inline constexpr unsigned kRowThreads = 8;  // its threads for a column
inline constexpr unsigned kRowBatch = 8;    // rows that a thread reads at a time

struct ColumnShape {
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t rows_per_chunk = 0;
  unsigned num_stripes = 0;
  unsigned num_chunks = 0;
};

// A chunk has 64 rows, or a multiple if the blocks' sums would not fit into the workspace.
inline ColumnShape column_shape(std::size_t rows, std::size_t cols, std::size_t num_values) {
  const auto pieces = [](std::size_t size, std::size_t of_piece) {
    return std::max<std::size_t>(1, (size + of_piece - 1) / of_piece);
  };
  constexpr std::size_t kRows = kRowThreads * kRowBatch;
  const std::size_t stripes = pieces(cols, kStripe);
  const std::size_t max_blocks = std::min(kMaxPartials / (kStripe * num_values), kMaxTickets);
  const std::size_t max_chunks = std::max<std::size_t>(1, max_blocks / stripes);
  const std::size_t rows_per_chunk = pieces(rows, max_chunks * kRows) * kRows;
  const std::size_t chunks = pieces(rows, rows_per_chunk);
  return {rows, cols, rows_per_chunk, static_cast<unsigned>(stripes),
          static_cast<unsigned>(chunks)};
}

// Adds the sums of the threads with the same threadIdx.x; those with threadIdx.y == 0 get the
// result.
template <int kValues>
__device__ void add_over_row_threads(double (&sums)[kValues]) {
  __shared__ double shared[kValues][kRowThreads][kStripe];
#pragma unroll
  for (int k = 0; k < kValues; ++k) shared[k][threadIdx.y][threadIdx.x] = sums[k];
  __syncthreads();
  if (threadIdx.y == 0) {
#pragma unroll
    for (int k = 0; k < kValues; ++k) {
      for (unsigned y = 1; y < kRowThreads; ++y) sums[k] += shared[k][y][threadIdx.x];
    }
  }
  __syncthreads();  // the next call may overwrite `shared`
}

// Leaves the block's sums in the workspace. Returns true in the last block of the stripe, where
// `sums` of the threads with threadIdx.y == 0 then cover all its chunks.
template <int kValues>
__device__ bool add_over_chunks(const ColumnShape& shape, const Workspace& workspace,
                                unsigned stripe, double (&sums)[kValues]) {
  if (threadIdx.y == 0) {
#pragma unroll
    for (int k = 0; k < kValues; ++k) {
      workspace.partials[(blockIdx.x * kValues + k) * kStripe + threadIdx.x] = sums[k];
    }
  }
  if (!is_last_block(workspace.tickets + stripe, shape.num_chunks)) return false;
  const volatile double* partials = workspace.partials;
#pragma unroll
  for (int k = 0; k < kValues; ++k) sums[k] = 0;
  for_steps<8>(threadIdx.y, shape.num_chunks, kRowThreads, [&](std::size_t chunk) {
    const std::size_t block = chunk * shape.num_stripes + stripe;
#pragma unroll
    for (int k = 0; k < kValues; ++k) {
      sums[k] += partials[(block * kValues + k) * kStripe + threadIdx.x];
    }
  });
  add_over_row_threads(sums);
  return true;
}

// Two blocks of an SM leave a thread 128 registers. Without that limit ptxas saves registers and
// reads the rows of a batch one by one.
template <typename Op>
__global__ void __launch_bounds__(kStripe* kRowThreads, 2)
    column_reduce_kernel(ColumnShape shape, Op op, Workspace workspace) {
  const unsigned stripe = blockIdx.x % shape.num_stripes;
  const std::size_t chunk = blockIdx.x / shape.num_stripes;
  const std::size_t column = std::size_t{stripe} * kStripe + threadIdx.x;
  const std::size_t begin = chunk * shape.rows_per_chunk;
  const std::size_t end =
      begin + shape.rows_per_chunk < shape.rows ? begin + shape.rows_per_chunk : shape.rows;
  double sums[Op::kValues] = {};
  if (column < shape.cols) {
    for_steps<kRowBatch>(begin + threadIdx.y, end, kRowThreads,
                         [&](std::size_t row) { op.add(row, column, sums); });
  }
  add_over_row_threads(sums);
  if (shape.num_chunks > 1 && !add_over_chunks(shape, workspace, stripe, sums)) return;
  if (threadIdx.y == 0 && column < shape.cols) op.finish(column, sums);
}

// One launch; none for no columns.
template <typename Op>
void launch_column_reduce(runtime::Stream& stream, const char* operation, std::size_t rows,
                          std::size_t cols, Op op) {
  if (cols == 0) return;
  const ColumnShape shape = column_shape(rows, cols, Op::kValues);
  launch(stream, operation,
         {dim3(shape.num_stripes * shape.num_chunks), dim3(kStripe, kRowThreads)},
         column_reduce_kernel<Op>, shape, op,
         shape.num_chunks > 1 ? workspace_of(stream) : Workspace{});
}

}  // namespace lockstep::kernels::cuda
