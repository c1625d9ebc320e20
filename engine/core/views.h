// Views of memory for kernels: a pointer with its meaning, without ownership.
//
// Kernels see views, never Tensor, so that the backend can be read (and replaced) on its own. A
// MatrixView has a leading dimension and a batch stride, so that convolution and attention can give
// kernels sub-matrices without strided tensors.
#pragma once

#include <cstddef>
#include <type_traits>

#include "engine/core/dtype.h"

namespace lockstep {

// num_elements consecutive elements.
template <typename Void>
struct BasicTensorView {
  Void* data = nullptr;
  DType dtype = DType::float32;
  std::size_t num_elements = 0;

  std::size_t num_bytes() const { return num_elements * size_of(dtype); }
  // `count` elements from `offset` on.
  BasicTensorView slice(std::size_t offset, std::size_t count) const {
    using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
    return {static_cast<Byte*>(data) + offset * size_of(dtype), dtype, count};
  }
  operator BasicTensorView<const void>() const { return {data, dtype, num_elements}; }
};

// batch matrices of rows x cols, row-major. Element (i, j) of matrix b is at
// b * batch_stride + i * leading_dimension + j (all counted in elements).
template <typename Void>
struct BasicMatrixView {
  Void* data = nullptr;
  DType dtype = DType::float32;
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t leading_dimension = 0;
  std::size_t batch = 1;
  std::size_t batch_stride = 0;

  std::size_t num_elements() const { return batch * rows * cols; }
  operator BasicMatrixView<const void>() const {
    return {data, dtype, rows, cols, leading_dimension, batch, batch_stride};
  }
};

using TensorView = BasicTensorView<void>;
using ConstTensorView = BasicTensorView<const void>;
using MatrixView = BasicMatrixView<void>;
using ConstMatrixView = BasicMatrixView<const void>;

// A contiguous matrix over data.
inline MatrixView matrix_view(void* data, DType dtype, std::size_t rows, std::size_t cols) {
  return {data, dtype, rows, cols, cols, 1, rows * cols};
}
inline ConstMatrixView matrix_view(const void* data, DType dtype, std::size_t rows,
                                   std::size_t cols) {
  return {data, dtype, rows, cols, cols, 1, rows * cols};
}

}  // namespace lockstep
