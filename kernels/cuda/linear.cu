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

template <typename Y, typename Function>
__global__ void finish_kernel(std::size_t rows, std::size_t cols, Rows<Y> y,
                              const ArithmeticOf<Y>* bias, Rows<Y> preactivation) {
  for_matrix(rows, cols, [&](std::size_t row, std::size_t j) {
    ArithmeticOf<Y> value = number(y[row][j]);
    if (bias) value += number(static_cast<Y>(bias[j]));
    if (preactivation.data) preactivation[row][j] = static_cast<Y>(value);
    y[row][j] = static_cast<Y>(Function::forward(value));
  });
}

template <typename T>
__global__ void zero_kernel(std::size_t batch, std::size_t rows, std::size_t cols, T* y,
                            std::size_t stride, std::size_t batch_stride) {
  for_matrix(batch * rows, cols, [&](std::size_t i, std::size_t j) {
    y[i / rows * batch_stride + i % rows * stride + j] = T{};
  });
}

// The sum of each column of a matrix.
template <typename X>
struct ColumnSum {
  using T = ArithmeticOf<X>;
  static constexpr int kValues = 1;
  Rows<const X> x;
  T* y;

  __device__ void add(std::size_t row, std::size_t column, double (&sums)[1]) const {
    sums[0] += static_cast<double>(number(x[row][column]));
  }
  __device__ void finish(std::size_t column, const double (&totals)[1]) const {
    y[column] = static_cast<T>(totals[0]);
  }
};

}  // namespace

void finish(Stream& stream, const Product& product) {
  const MatrixView& y = product.c;
  if (y.num_elements() == 0) return;
  for_activations(y.dtype, "linear", [&]<typename Y>() {
    for_activation(product.activation, [&](auto function) {
      launch(stream, "linear", row_tiles(y.rows, y.cols), finish_kernel<Y, decltype(function)>,
             y.rows, y.cols, rows_of<Y>(y), data_of<ArithmeticOf<Y>>(product.bias),
             rows_of<Y>(product.preactivation));
    });
  });
}

void zero_matrix(Stream& stream, MatrixView y) {
  if (y.num_elements() == 0) return;
  for_width(y.dtype, [&]<typename T>() {
    launch(stream, "matmul", row_tiles(y.batch * y.rows, y.cols), zero_kernel<T>, y.batch, y.rows,
           y.cols, data_of<T>(y), y.leading_dimension, y.batch_stride);
  });
}

void CudaBackend::matmul(Stream& stream, const Matmul& call) {
  require_activations("matmul", call.a.dtype);
  run(stream, {"matmul", call.a, call.transpose_a, call.b, call.transpose_b, call.c, call.write});
}

void CudaBackend::linear_forward(Stream& stream, const LinearForward& call) {
  require_activations("linear", call.x.dtype);
  // y [batch, out] = x [batch, in] * (weight [out, in])^T
  run(stream, {"linear", call.x, Transpose::no, call.weight, Transpose::yes, call.y,
               Write::overwrite, call.bias, call.activation, call.preactivation});
}

void CudaBackend::linear_backward(Stream& stream, const LinearBackward& call) {
  const auto* name = "linear backward";
  require_activations(name, call.x.dtype);
  const auto sum_columns = [&](Stream& on) {
    if (call.grad_bias.data == nullptr) return;
    for_activations(call.x.dtype, name, [&]<typename X>() {
      launch_column_reduce(
          on, name, call.grad_z.rows, call.grad_z.cols,
          ColumnSum<X>{rows_of<X>(call.grad_z), data_of<ArithmeticOf<X>>(call.grad_bias)});
    });
  };
  // [out, in] = (grad_z [batch, out])^T * x [batch, in]
  const Product by_x{name, call.grad_z, Transpose::yes, call.x, Transpose::no, call.grad_weight};
  const auto multiply_by_x = [&](Stream& on) {
    if (call.grad_weight.data != nullptr) run(on, by_x);
  };
  const auto multiply_by_weight = [&](Stream& on) {
    if (call.grad_x.data == nullptr) return;
    // [batch, in] = grad_z [batch, out] * weight [out, in]
    run(on, {name, call.grad_z, Transpose::no, call.weight, Transpose::no, call.grad_x});
  };
  if (is_in_step_graph(stream) && takes_no_memory(stream, by_x)) {
    return side_by_side(stream, {multiply_by_weight, multiply_by_x, sum_columns});
  }
  multiply_by_weight(stream);
  multiply_by_x(stream);
  sum_columns(stream);
}

}  // namespace lockstep::kernels::cuda
