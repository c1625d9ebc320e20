#include "kernels/cuda/linear_finish.h"

#include <algorithm>

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/checks.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vector.cuh"

namespace lockstep::kernels::cuda {
namespace {

// A matrix as a kernel takes it.
template <typename T>
struct Rows {
  T* data = nullptr;
  std::size_t leading_dimension = 0;

  __device__ T* at(std::size_t row, std::size_t col) const {
    return data + row * leading_dimension + col;
  }
};

template <typename T>
Rows<T> rows_of(const MatrixView& view) {
  return {data_of<T>(view), view.leading_dimension};
}
template <typename T>
Rows<const T> rows_of(const ConstMatrixView& view) {
  return {data_of<T>(view), view.leading_dimension};
}

// Every row can be read and written in vectors.
template <typename T>
bool has_vector_rows(const ConstMatrixView& view) {
  return view.data == nullptr || (is_aligned(view.data) && view.cols % kWidth<T> == 0 &&
                                  view.leading_dimension % kWidth<T> == 0);
}

// The threads of a block cover columns first: a power of two that reaches over a narrow matrix, so
// that the rest of the block takes further rows.
LaunchShape covering_rows(std::size_t rows, std::size_t vectors_per_row) {
  unsigned width = kWarp;
  while (width < kThreads && width < vectors_per_row) width *= 2;
  const unsigned height = kThreads / width;
  const auto blocks = [](std::size_t count, unsigned per_block, std::size_t limit) {
    return static_cast<unsigned>(std::min((count + per_block - 1) / per_block, limit));
  };
  return {dim3(blocks(vectors_per_row, width, 1024), blocks(rows, height, 16384)),
          dim3(width, height)};
}

// Calls body(row, first column) for every run of kElements columns that is the calling thread's.
template <std::size_t kElements, typename Body>
__device__ void for_rows(std::size_t rows, std::size_t cols, const Body& body) {
  const std::size_t first = (std::size_t{blockIdx.x} * blockDim.x + threadIdx.x) * kElements;
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x * kElements;
  const std::size_t row_step = std::size_t{gridDim.y} * blockDim.y;
  for (std::size_t row = std::size_t{blockIdx.y} * blockDim.y + threadIdx.y; row < rows;
       row += row_step) {
    for (std::size_t col = first; col < cols; col += step) body(row, col);
  }
}

template <typename T, typename Function, std::size_t kElements>
__global__ void forward_kernel(std::size_t rows, std::size_t cols, Rows<T> y, const T* bias,
                               Rows<T> preactivation) {
  for_rows<kElements>(rows, cols, [&](std::size_t row, std::size_t col) {
    auto values = load_vector<kElements>(y.at(row, col));
#pragma unroll
    for (std::size_t k = 0; k < kElements; ++k) {
      if (bias != nullptr) values.at[k] += bias[col + k];
    }
    if (preactivation.data != nullptr) store_vector(preactivation.at(row, col), values);
#pragma unroll
    for (std::size_t k = 0; k < kElements; ++k) values.at[k] = Function::forward(values.at[k]);
    store_vector(y.at(row, col), values);
  });
}

template <typename T, typename Function, std::size_t kElements>
__global__ void backward_kernel(std::size_t rows, std::size_t cols, Rows<const T> saved,
                                Rows<const T> grad_y, Rows<T> grad_x) {
  for_rows<kElements>(rows, cols, [&](std::size_t row, std::size_t col) {
    const auto value = load_vector<kElements>(saved.at(row, col));
    auto grad = load_vector<kElements>(grad_y.at(row, col));
#pragma unroll
    for (std::size_t k = 0; k < kElements; ++k) {
      grad.at[k] = Function::backward(value.at[k], grad.at[k]);
    }
    store_vector(grad_x.at(row, col), grad);
  });
}

template <typename T>
__global__ void zero_kernel(std::size_t rows, std::size_t cols, std::size_t batch_stride,
                            Rows<T> y) {
  y.data += blockIdx.z * batch_stride;
  for_rows<1>(rows, cols, [&](std::size_t row, std::size_t col) { *y.at(row, col) = T(0); });
}

}  // namespace

void finish_forward(Stream& stream, MatrixView y, ConstTensorView bias, Activation activation,
                    MatrixView preactivation) {
  if (y.num_elements() == 0) return;
  for_floating(y.dtype, "linear", [&]<typename T>() {
    for_activation(activation, [&](auto function) {
      const auto run = [&]<std::size_t kElements>() {
        launch(stream, "linear", covering_rows(y.rows, (y.cols + kElements - 1) / kElements),
               forward_kernel<T, decltype(function), kElements>, y.rows, y.cols, rows_of<T>(y),
               data_of<T>(bias), rows_of<T>(preactivation));
      };
      if (has_vector_rows<T>(y) && has_vector_rows<T>(preactivation)) {
        run.template operator()<kWidth<T>>();
      } else {
        run.template operator()<1>();
      }
    });
  });
}

void finish_backward(Stream& stream, Activation activation, ConstMatrixView saved,
                     ConstMatrixView grad_y, MatrixView grad_x) {
  if (grad_x.num_elements() == 0) return;
  for_floating(grad_x.dtype, "linear backward", [&]<typename T>() {
    for_activation(activation, [&](auto function) {
      const auto run = [&]<std::size_t kElements>() {
        launch(stream, "linear backward",
               covering_rows(grad_x.rows, (grad_x.cols + kElements - 1) / kElements),
               backward_kernel<T, decltype(function), kElements>, grad_x.rows, grad_x.cols,
               rows_of<T>(saved), rows_of<T>(grad_y), rows_of<T>(grad_x));
      };
      if (has_vector_rows<T>(saved) && has_vector_rows<T>(grad_y) && has_vector_rows<T>(grad_x)) {
        run.template operator()<kWidth<T>>();
      } else {
        run.template operator()<1>();
      }
    });
  });
}

void zero_matrix(Stream& stream, MatrixView y) {
  if (y.num_elements() == 0) return;
  for_floating(y.dtype, "matmul", [&]<typename T>() {
    constexpr std::size_t kMaxBatch = 65535;  // of one launch: gridDim.z ends there
    for (std::size_t first = 0; first < y.batch; first += kMaxBatch) {
      LaunchShape shape = covering_rows(y.rows, y.cols);
      shape.grid.z = static_cast<unsigned>(std::min(y.batch - first, kMaxBatch));
      Rows<T> rows = rows_of<T>(y);
      rows.data += first * y.batch_stride;
      launch(stream, "matmul", shape, zero_kernel<T>, y.rows, y.cols, y.batch_stride, rows);
    }
  });
}

}  // namespace lockstep::kernels::cuda
