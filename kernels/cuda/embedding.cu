// Embedding. Forward: one launch, writes y once. Backward: a block owns up to 32 rows of the table
// and 128 of their columns, goes through all tokens, 512 at a time, and adds the gradients of its
// own rows in order, so there are no atomics. It reads 8 gradients ahead, because a few tokens are
// so frequent in text that one block adds a sixth of all.
#include <algorithm>
#include <cstdint>

#include "engine/runtime/cuda/cuda_stream.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/element_types.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/sequence_calls.h"

namespace lockstep::kernels::cuda {
namespace {

// A token outside the vocabulary is read as zeros. positions: no data for none.
template <typename Y, typename T = ArithmeticOf<Y>>
__global__ void embedding_kernel(std::size_t rows, std::size_t cols, const std::int64_t* tokens,
                                 Rows<const T> weight, std::size_t vocabulary,
                                 Rows<const T> positions, std::size_t length, Rows<Y> y,
                                 DeviceFault* fault) {
  for_matrix(rows, cols, [&](std::size_t row, std::size_t j) {
    const std::int64_t token = tokens[row];
    const bool is_good = is_within(token, vocabulary);
    if (!is_good && j == 0) report_fault(fault, FaultKind::token, token, vocabulary);
    const T value = is_good ? weight[static_cast<std::size_t>(token)][j] : T(0);
    y[row][j] = static_cast<Y>(value + (positions.data ? positions[row % length][j] : T(0)));
  });
}

constexpr unsigned kTableThreads = 128;  // and columns of a block
constexpr std::size_t kTableRows = 32;   // of a block, at most
constexpr unsigned kTokens = 4;          // that a thread reads at once
constexpr unsigned kAhead = 8;           // gradients that a thread reads at once
constexpr unsigned kWindow = kTokens * kTableThreads;
constexpr unsigned kTableWarps = kTableThreads / kWarp;
static_assert(kTokens * kTableWarps <= kWarp);

template <typename Y, typename T = ArithmeticOf<Y>>
__global__ void __launch_bounds__(kTableThreads)
    table_gradient_kernel(const std::int64_t* tokens, std::size_t num_tokens, Rows<const Y> grad_y,
                          std::size_t vocabulary, std::size_t cols, std::size_t rows_per_block,
                          Rows<T> grad_weight) {
  struct Hit {  // a token of the window in one of the block's rows
    std::uint16_t at, row;
  };
  __shared__ T sums[kTableRows + 1][kTableThreads];  // the last row is nobody's
  __shared__ Hit hits[kWindow + kAhead];
  __shared__ unsigned counts[2][kTokens * kTableWarps];  // of hits; for every other window
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  const std::size_t stripes = (cols + kTableThreads - 1) / kTableThreads;
  const std::size_t groups = (vocabulary + rows_per_block - 1) / rows_per_block;
  unsigned turn = 0;
  for (std::size_t piece = blockIdx.x; piece < groups * stripes; piece += gridDim.x) {
    const std::size_t first = piece / stripes * rows_per_block;
    const std::size_t rows =
        first + rows_per_block < vocabulary ? rows_per_block : vocabulary - first;
    const std::size_t own_column = piece % stripes * kTableThreads + threadIdx.x;
    const std::size_t column = own_column < cols ? own_column : cols - 1;
    for (std::size_t row = 0; row < rows; ++row) sums[row][threadIdx.x] = T(0);
    for (std::size_t begin = 0; begin < num_tokens; begin += kWindow, turn ^= 1) {
      std::int64_t row_of[kTokens];
      unsigned lanes[kTokens];  // those of the warp with hits
#pragma unroll
      for (unsigned i = 0; i < kTokens; ++i) {
        const std::size_t at = begin + i * kTableThreads + threadIdx.x;
        row_of[i] = at < num_tokens ? tokens[at] - static_cast<std::int64_t>(first) : -1;
      }
#pragma unroll
      for (unsigned i = 0; i < kTokens; ++i) {
        lanes[i] = __ballot_sync(kAllLanes, is_within(row_of[i], rows));
        if (lane == 0) counts[turn][i * kTableWarps + warp] = __popc(lanes[i]);
      }
      __syncthreads();
      // Hits keep the order of tokens: those of a warp's 32 tokens go after all before them.
      const unsigned count = lane < kTokens * kTableWarps ? counts[turn][lane] : 0;
      if (__ballot_sync(kAllLanes, count != 0) == 0) continue;
      unsigned end = count;
#pragma unroll
      for (unsigned distance = 1; distance < kWarp; distance *= 2) {
        const unsigned before = __shfl_sync(kAllLanes, end, lane - distance);
        if (lane >= distance) end += before;
      }
      const unsigned num_hits = __shfl_sync(kAllLanes, end, kWarp - 1);
#pragma unroll
      for (unsigned i = 0; i < kTokens; ++i) {
        const unsigned place = __shfl_sync(kAllLanes, end - count, i * kTableWarps + warp);
        if ((lanes[i] >> lane & 1u) != 0) {
          hits[place + __popc(lanes[i] & ((1u << lane) - 1))] = {
              static_cast<std::uint16_t>(i * kTableThreads + threadIdx.x),
              static_cast<std::uint16_t>(row_of[i])};
        }
      }
      if (threadIdx.x < kAhead) hits[num_hits + threadIdx.x] = {0, kTableRows};
      __syncthreads();
      for (unsigned next = 0; next < num_hits; next += kAhead) {
        Y grads[kAhead];
#pragma unroll
        for (unsigned i = 0; i < kAhead; ++i) grads[i] = grad_y[begin + hits[next + i].at][column];
        __syncwarp();  // keeps the compiler from adding between the reads
#pragma unroll
        for (unsigned i = 0; i < kAhead; ++i) {
          sums[hits[next + i].row][threadIdx.x] += number(grads[i]);
        }
      }
    }
    for (std::size_t row = 0; row < rows; ++row) {
      if (own_column < cols) grad_weight[first + row][own_column] = sums[row][threadIdx.x];
    }
  }
}

// Adds each position's rows of all sequences, in their order.
template <typename Y, typename T = ArithmeticOf<Y>>
__global__ void position_gradient_kernel(Rows<const Y> grad_y, std::size_t num_rows,
                                         std::size_t length, std::size_t cols,
                                         Rows<T> grad_positions) {
  for_matrix(length, cols, [&](std::size_t t, std::size_t j) {
    T sum = T(0);
    for_steps<8>(t, num_rows, length, [&](std::size_t i) { sum += number(grad_y[i][j]); });
    grad_positions[t][j] = sum;
  });
}

}  // namespace

void CudaBackend::embedding_forward(Stream& stream, const EmbeddingForward& call) {
  if (call.y.num_elements() == 0) return;
  for_activations(call.y.dtype, "embedding", [&]<typename Y>() {
    using T = ArithmeticOf<Y>;
    launch(stream, "embedding", row_tiles(call.y.rows, call.y.cols), embedding_kernel<Y>,
           call.y.rows, call.y.cols, data_of<std::int64_t>(call.tokens), rows_of<T>(call.weight),
           call.weight.rows, rows_of<T>(call.positions),
           std::max<std::size_t>(1, call.positions.rows), rows_of<Y>(call.y),
           runtime::cuda::cuda_stream(stream).fault());
  });
}

void CudaBackend::embedding_backward(Stream& stream, const EmbeddingBackward& call) {
  constexpr std::size_t kBlocks = 2048;  // that fill a large GPU
  const auto* name = "embedding backward";
  for_activations(call.grad_y.dtype, name, [&]<typename Y>() {
    using T = ArithmeticOf<Y>;
    if (call.grad_weight.data && call.grad_weight.num_elements() > 0) {
      const auto& table = call.grad_weight;
      const std::size_t stripes = (table.cols + kTableThreads - 1) / kTableThreads;
      const std::size_t rows_per_block =
          std::clamp<std::size_t>(table.rows * stripes / kBlocks, 1, kTableRows);
      const std::size_t groups = (table.rows + rows_per_block - 1) / rows_per_block;
      launch(stream, name, covering(groups * stripes * kTableThreads, kTableThreads),
             table_gradient_kernel<Y>, data_of<std::int64_t>(call.tokens), call.grad_y.rows,
             rows_of<Y>(call.grad_y), table.rows, table.cols, rows_per_block, rows_of<T>(table));
    }
    if (call.grad_positions.data && call.grad_positions.num_elements() > 0) {
      launch(stream, name, row_tiles(call.grad_positions.rows, call.grad_positions.cols),
             position_gradient_kernel<Y>, rows_of<Y>(call.grad_y), call.grad_y.rows,
             call.grad_positions.rows, call.grad_positions.cols, rows_of<T>(call.grad_positions));
    }
  });
}

}  // namespace lockstep::kernels::cuda
