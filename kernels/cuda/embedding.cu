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

namespace lockstep::kernels::cuda {
namespace {

template <typename T>
struct Table {
  const std::int64_t* tokens;
  const T* weight;
  std::size_t vocabulary;
  std::size_t leading_dimension;
  const T* positions;  // or nullptr
  std::size_t length;
  std::size_t positions_leading_dimension;
  T* y;
  std::size_t rows;
  std::size_t cols;
  std::size_t y_leading_dimension;
  DeviceFault* fault;
};

// A token outside the vocabulary is read as zeros.
template <typename T>
__global__ void embedding_kernel(Table<T> call) {
  for_matrix(call.rows, call.cols, [&](std::size_t row, std::size_t j) {
    const std::int64_t token = call.tokens[row];
    const bool is_good = is_within(token, call.vocabulary);
    if (!is_good && j == 0) report_fault(call.fault, FaultKind::token, token, call.vocabulary);
    const T value =
        is_good ? call.weight[static_cast<std::size_t>(token) * call.leading_dimension + j] : T(0);
    const std::size_t place = row % call.length;
    call.y[row * call.y_leading_dimension + j] =
        value +
        (call.positions ? call.positions[place * call.positions_leading_dimension + j] : T(0));
  });
}

template <typename T>
struct TableGradient {
  const std::int64_t* tokens;
  const T* grad_y;
  std::size_t num_tokens;
  std::size_t grad_y_leading_dimension;
  T* grad_weight;
  std::size_t vocabulary;
  std::size_t cols;
  std::size_t leading_dimension;
  std::size_t rows_per_warp;
};

template <typename T>
__global__ void table_gradient_kernel(TableGradient<T> call) {
  const unsigned lane = threadIdx.x % kWarp;
  const std::size_t stripes = (call.cols + kWarp - 1) / kWarp;
  const std::size_t groups = (call.vocabulary + call.rows_per_warp - 1) / call.rows_per_warp;
  for (std::size_t piece = global_thread() / kWarp; piece < groups * stripes;
       piece += num_global_threads() / kWarp) {
    const std::size_t first = piece / stripes * call.rows_per_warp;
    const std::size_t last =
        first + call.rows_per_warp < call.vocabulary ? first + call.rows_per_warp : call.vocabulary;
    const std::size_t column = piece % stripes * kWarp + lane;
    const bool has_column = column < call.cols;
    for (std::size_t v = first; v < last; ++v) {
      if (has_column) call.grad_weight[v * call.leading_dimension + column] = T(0);
    }
    for (std::size_t begin = 0; begin < call.num_tokens; begin += kWarp) {
      const std::int64_t token =
          begin + lane < call.num_tokens ? call.tokens[begin + lane] : std::int64_t{-1};
      const bool is_ours =
          token >= static_cast<std::int64_t>(first) && token < static_cast<std::int64_t>(last);
      for (unsigned ours = __ballot_sync(kAllLanes, is_ours); ours != 0; ours &= ours - 1) {
        const std::size_t i = begin + static_cast<unsigned>(__ffs(static_cast<int>(ours)) - 1);
        if (!has_column) continue;
        const auto v = static_cast<std::size_t>(call.tokens[i]);
        call.grad_weight[v * call.leading_dimension + column] +=
            call.grad_y[i * call.grad_y_leading_dimension + column];
      }
    }
  }
}

// Adds each position's rows of all sequences, in their order.
template <typename T>
__global__ void position_gradient_kernel(const T* grad_y, std::size_t num_rows,
                                         std::size_t grad_y_leading_dimension, T* grad_positions,
                                         std::size_t length, std::size_t cols,
                                         std::size_t leading_dimension) {
  for_matrix(length, cols, [&](std::size_t t, std::size_t j) {
    T sum = T(0);
    for (std::size_t i = t; i < num_rows; i += length) {
      sum += grad_y[i * grad_y_leading_dimension + j];
    }
    grad_positions[t * leading_dimension + j] = sum;
  });
}

}  // namespace

void CudaBackend::embedding_forward(Stream& stream, ConstTensorView tokens, ConstMatrixView weight,
                                    ConstMatrixView positions, MatrixView y) {
  if (y.num_elements() == 0) return;
  for_floating(weight.dtype, "embedding", [&]<typename T>() {
    launch(stream, "embedding", row_tiles(y.rows, y.cols), embedding_kernel<T>,
           {.tokens = data_of<std::int64_t>(tokens),
            .weight = data_of<T>(weight),
            .vocabulary = weight.rows,
            .leading_dimension = weight.leading_dimension,
            .positions = data_of<T>(positions),
            .length = std::max<std::size_t>(1, positions.rows),
            .positions_leading_dimension = positions.leading_dimension,
            .y = data_of<T>(y),
            .rows = y.rows,
            .cols = y.cols,
            .y_leading_dimension = y.leading_dimension,
            .fault = runtime::cuda::cuda_stream(stream).fault()});
  });
}

void CudaBackend::embedding_backward(Stream& stream, ConstTensorView tokens, ConstMatrixView grad_y,
                                     MatrixView grad_weight, MatrixView grad_positions) {
  constexpr std::size_t kPieces = 8192;  // warps that fill a large GPU
  const auto* name = "embedding backward";
  for_floating(grad_y.dtype, name, [&]<typename T>() {
    if (grad_weight.data && grad_weight.num_elements() > 0) {
      const std::size_t stripes = (grad_weight.cols + kWarp - 1) / kWarp;
      const std::size_t rows_per_warp =
          std::clamp<std::size_t>(grad_weight.rows * stripes / kPieces, 1, 32);
      const std::size_t groups = (grad_weight.rows + rows_per_warp - 1) / rows_per_warp;
      launch(stream, name, covering(groups * stripes * kWarp, kThreads), table_gradient_kernel<T>,
             {.tokens = data_of<std::int64_t>(tokens),
              .grad_y = data_of<T>(grad_y),
              .num_tokens = grad_y.rows,
              .grad_y_leading_dimension = grad_y.leading_dimension,
              .grad_weight = data_of<T>(grad_weight),
              .vocabulary = grad_weight.rows,
              .cols = grad_weight.cols,
              .leading_dimension = grad_weight.leading_dimension,
              .rows_per_warp = rows_per_warp});
    }
    if (grad_positions.data && grad_positions.num_elements() > 0) {
      launch(stream, name, row_tiles(grad_positions.rows, grad_positions.cols),
             position_gradient_kernel<T>, data_of<T>(grad_y), grad_y.rows, grad_y.leading_dimension,
             data_of<T>(grad_positions), grad_positions.rows, grad_positions.cols,
             grad_positions.leading_dimension);
    }
  });
}

}  // namespace lockstep::kernels::cuda
