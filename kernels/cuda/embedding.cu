// Embedding. Forward: one launch, writes y once. Backward: a warp owns some rows of the table and
// 32 of their columns, goes through all tokens, 32 at a time, and adds the gradients of its own
// rows in order, so there are no atomics.
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

template <typename Y, typename T = ArithmeticOf<Y>>
__global__ void table_gradient_kernel(const std::int64_t* tokens, std::size_t num_tokens,
                                      Rows<const Y> grad_y, std::size_t vocabulary,
                                      std::size_t cols, std::size_t rows_per_warp,
                                      Rows<T> grad_weight) {
  const unsigned lane = threadIdx.x % kWarp;
  const std::size_t stripes = (cols + kWarp - 1) / kWarp;
  const std::size_t groups = (vocabulary + rows_per_warp - 1) / rows_per_warp;
  for (std::size_t piece = global_thread() / kWarp; piece < groups * stripes;
       piece += num_global_threads() / kWarp) {
    const std::size_t first = piece / stripes * rows_per_warp;
    const std::size_t last =
        first + rows_per_warp < vocabulary ? first + rows_per_warp : vocabulary;
    const std::size_t column = piece % stripes * kWarp + lane;
    const bool has_column = column < cols;
    for (std::size_t v = first; v < last; ++v) {
      if (has_column) grad_weight[v][column] = T(0);
    }
    for (std::size_t begin = 0; begin < num_tokens; begin += kWarp) {
      const std::int64_t token =
          begin + lane < num_tokens ? tokens[begin + lane] : std::int64_t{-1};
      const bool is_ours =
          token >= static_cast<std::int64_t>(first) && token < static_cast<std::int64_t>(last);
      for (unsigned ours = __ballot_sync(kAllLanes, is_ours); ours != 0; ours &= ours - 1) {
        const std::size_t i = begin + static_cast<unsigned>(__ffs(static_cast<int>(ours)) - 1);
        if (!has_column) continue;
        grad_weight[static_cast<std::size_t>(tokens[i])][column] += number(grad_y[i][column]);
      }
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
    for (std::size_t i = t; i < num_rows; i += length) sum += number(grad_y[i][j]);
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
  constexpr std::size_t kPieces = 8192;  // warps that fill a large GPU
  const auto* name = "embedding backward";
  for_activations(call.grad_y.dtype, name, [&]<typename Y>() {
    using T = ArithmeticOf<Y>;
    if (call.grad_weight.data && call.grad_weight.num_elements() > 0) {
      const std::size_t stripes = (call.grad_weight.cols + kWarp - 1) / kWarp;
      const std::size_t rows_per_warp =
          std::clamp<std::size_t>(call.grad_weight.rows * stripes / kPieces, 1, 32);
      const std::size_t groups = (call.grad_weight.rows + rows_per_warp - 1) / rows_per_warp;
      launch(stream, name, covering(groups * stripes * kWarp, kThreads), table_gradient_kernel<Y>,
             data_of<std::int64_t>(call.tokens), call.grad_y.rows, rows_of<Y>(call.grad_y),
             call.grad_weight.rows, call.grad_weight.cols, rows_per_warp,
             rows_of<T>(call.grad_weight));
    }
    if (call.grad_positions.data && call.grad_positions.num_elements() > 0) {
      launch(stream, name, row_tiles(call.grad_positions.rows, call.grad_positions.cols),
             position_gradient_kernel<Y>, rows_of<Y>(call.grad_y), call.grad_y.rows,
             call.grad_positions.rows, call.grad_positions.cols, rows_of<T>(call.grad_positions));
    }
  });
}

}  // namespace lockstep::kernels::cuda
