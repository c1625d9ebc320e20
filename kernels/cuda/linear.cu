// Matrix products and the linear layer. Forward: a product that also adds the bias and applies the
// activation, with a kernel's help where the library cannot. Backward: two products and the sums of
// columns, side by side.
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/element_types.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/product.h"
#include "kernels/cuda/reduce.cuh"

namespace lockstep::kernels::cuda {
namespace {

template <typename T, typename Function>
__global__ void finish_kernel(std::size_t rows, std::size_t cols, Rows<T> y, const T* bias,
                              Rows<T> preactivation) {
  for_matrix(rows, cols, [&](std::size_t row, std::size_t j) {
    T value = y[row][j];
    if (bias) value += bias[j];
    if (preactivation.data) preactivation[row][j] = value;
    y[row][j] = Function::forward(value);
  });
}

template <typename T>
__global__ void zero_kernel(std::size_t batch, std::size_t rows, std::size_t cols, T* y,
                            std::size_t stride, std::size_t batch_stride) {
  for_matrix(batch * rows, cols, [&](std::size_t i, std::size_t j) {
    y[i / rows * batch_stride + i % rows * stride + j] = T(0);
  });
}

// The sum of each column of a matrix.
template <typename T>
struct ColumnSum {
  static constexpr int kValues = 1;
  Rows<const T> x;
  T* y;

  __device__ void add(std::size_t row, std::size_t column, double (&sums)[1]) const {
    sums[0] += static_cast<double>(x[row][column]);
  }
  __device__ void finish(std::size_t column, const double (&totals)[1]) const {
    y[column] = static_cast<T>(totals[0]);
  }
};

}  // namespace

void finish(Stream& stream, const Product& product) {
  const MatrixView& y = product.c;
  if (y.num_elements() == 0) return;
  for_floating(y.dtype, "linear", [&]<typename T>() {
    for_activation(product.activation, [&](auto function) {
      launch(stream, "linear", row_tiles(y.rows, y.cols), finish_kernel<T, decltype(function)>,
             y.rows, y.cols, rows_of<T>(y), data_of<T>(product.bias),
             rows_of<T>(product.preactivation));
    });
  });
}

void zero_matrix(Stream& stream, MatrixView y) {
  if (y.num_elements() == 0) return;
  for_floating(y.dtype, "matmul", [&]<typename T>() {
    launch(stream, "matmul", row_tiles(y.batch * y.rows, y.cols), zero_kernel<T>, y.batch, y.rows,
           y.cols, data_of<T>(y), y.leading_dimension, y.batch_stride);
  });
}

void CudaBackend::matmul(Stream& stream, const Matmul& call) {
  require_floating("matmul", call.a.dtype);
  run(stream, {"matmul", call.a, call.transpose_a, call.b, call.transpose_b, call.c, call.write});
}

void CudaBackend::linear_forward(Stream& stream, const LinearForward& call) {
  require_floating("linear", call.x.dtype);
  // y [batch, out] = x [batch, in] * (weight [out, in])^T
  run(stream, {"linear", call.x, Transpose::no, call.weight, Transpose::yes, call.y,
               Write::overwrite, call.bias, call.activation, call.preactivation});
}

void CudaBackend::linear_backward(Stream& stream, const LinearBackward& call) {
  const auto* name = "linear backward";
  require_floating(name, call.x.dtype);
  const auto sum_columns = [&](Stream& on) {
    if (call.grad_bias.data == nullptr) return;
    for_floating(call.x.dtype, name, [&]<typename T>() {
      launch_column_reduce(on, name, call.grad_z.rows, call.grad_z.cols,
                           ColumnSum<T>{rows_of<T>(call.grad_z), data_of<T>(call.grad_bias)});
    });
  };
  const auto multiply_by_x = [&](Stream& on) {
    if (call.grad_weight.data == nullptr) return;
    // [out, in] = (grad_z [batch, out])^T * x [batch, in]
    run(on, {name, call.grad_z, Transpose::yes, call.x, Transpose::no, call.grad_weight});
  };
  const auto multiply_by_weight = [&](Stream& on) {
    if (call.grad_x.data == nullptr) return;
    // [batch, in] = grad_z [batch, out] * weight [out, in]
    run(on, {name, call.grad_z, Transpose::no, call.weight, Transpose::no, call.grad_x});
  };
  side_by_side(stream, {multiply_by_weight, multiply_by_x, sum_columns});
}

}  // namespace lockstep::kernels::cuda
