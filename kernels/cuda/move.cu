// Copies and fills. They move bits, so one kernel serves all element types of a width.
#include <algorithm>
#include <cstring>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/half.cuh"
#include "kernels/cuda/row_tiles.cuh"

namespace lockstep::kernels::cuda {
namespace {

template <typename Unit>
struct Itself {
  __device__ Unit operator()(const Unit (&x)[1]) const { return x[0]; }
};

// Where the batch matrices of one side stand, in units.
struct Strides {
  std::size_t leading_dimension;
  std::size_t batch_stride;
};

template <typename Unit>
__global__ void copy_rows_kernel(const Unit* from, Strides from_strides, Unit* to,
                                 Strides to_strides, std::size_t batch, std::size_t rows,
                                 std::size_t cols) {
  for_row_tiles(batch * rows, cols, [&](std::size_t i, std::size_t begin, std::size_t end) {
    const std::size_t matrix = i / rows;
    const std::size_t row = i % rows;
    transform_in_warp<1>(
        from + matrix * from_strides.batch_stride + row * from_strides.leading_dimension,
        to + matrix * to_strides.batch_stride + row * to_strides.leading_dimension, begin, end,
        [](const Unit& unit) { return unit; });
  });
}

// Whether all rows of a matrix begin and end at a multiple of 16 bytes.
bool has_aligned_rows(const ConstMatrixView& view) {
  const std::size_t size = size_of(view.dtype);
  return is_aligned(view.data) && view.cols * size % 16 == 0 &&
         view.leading_dimension * size % 16 == 0 && view.batch_stride * size % 16 == 0;
}

// unit_elements: how many elements a unit holds.
template <typename Unit>
void copy_rows(Stream& stream, const ConstMatrixView& from, const MatrixView& to,
               std::size_t unit_elements) {
  const auto strides = [&](const ConstMatrixView& view) {
    return Strides{view.leading_dimension / unit_elements, view.batch_stride / unit_elements};
  };
  const std::size_t cols = from.cols / unit_elements;
  launch(stream, "copy_matrix", row_tiles(from.batch * from.rows, cols), copy_rows_kernel<Unit>,
         data_of<Unit>(from), strides(from), data_of<Unit>(to), strides(to), from.batch, from.rows,
         cols);
}

template <typename Unit>
__global__ void fill_kernel(Unit* to, std::size_t num_elements, std::size_t in_vectors,
                            Unit value) {
  Vector<Unit> vector;
#pragma unroll
  for (std::size_t k = 0; k < kWidth<Unit>; ++k) vector.at[k] = value;
  const std::size_t step = num_global_threads();
  for (std::size_t i = global_thread() * kWidth<Unit>; i < in_vectors; i += step * kWidth<Unit>) {
    store_vector(to + i, vector);
  }
  for (std::size_t i = in_vectors + global_thread(); i < num_elements; i += step) to[i] = value;
}

// The bits of a value as an element of dtype.
std::uint64_t bits_of(DType dtype, double value) {
  std::uint64_t bits = 0;
  const auto take = [&](auto element) { std::memcpy(&bits, &element, sizeof(element)); };
  for_any(dtype, [&]<typename T>() { take(element_cast<T>(value)); });
  return bits;
}

}  // namespace

void CudaBackend::copy(Stream& stream, ConstTensorView from, TensorView to) {
  checks::copy(from, to);
  for_width(from.dtype, [&]<typename Unit>() {
    launch_elementwise(stream, "copy", Inputs<Unit, 1>{{data_of<Unit>(from)}}, data_of<Unit>(to),
                       to.num_elements, Itself<Unit>{});
  });
}

void CudaBackend::copy_matrix(Stream& stream, ConstMatrixView from, MatrixView to) {
  checks::copy_matrix(from, to);
  if (from.num_elements() == 0) return;
  if (from.is_contiguous() && to.is_contiguous()) {
    return copy(stream, {from.data, from.dtype, from.num_elements()},
                {to.data, to.dtype, to.num_elements()});
  }
  if (has_aligned_rows(from) && has_aligned_rows(to)) {
    return copy_rows<Vector<std::uint32_t>>(stream, from, to, 16 / size_of(from.dtype));
  }
  for_width(from.dtype, [&]<typename Unit>() { copy_rows<Unit>(stream, from, to, 1); });
}

void CudaBackend::fill(Stream& stream, TensorView to, double value) {
  if (to.num_elements == 0) return;
  const std::uint64_t bits = bits_of(to.dtype, value);
  for_width(to.dtype, [&]<typename Unit>() {
    const std::size_t in_vectors =
        is_aligned(to.data) ? to.num_elements / kWidth<Unit> * kWidth<Unit> : 0;
    const std::size_t wanted = std::max(in_vectors / kWidth<Unit>, to.num_elements - in_vectors);
    launch(stream, "fill", covering(wanted, kThreads), fill_kernel<Unit>, data_of<Unit>(to),
           to.num_elements, in_vectors, static_cast<Unit>(bits));
  });
}

}  // namespace lockstep::kernels::cuda
