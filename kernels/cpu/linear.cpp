// Matrix products and the linear layer.
#include "kernels/cpu/linear.h"

#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/parallel.h"

namespace lockstep::kernels {
namespace {

// Matrix `batch` of a view; a view with one matrix serves the whole batch.
template <typename T>
Factor<T> factor(const ConstMatrixView& view, Transpose transpose = Transpose::no,
                 std::size_t batch = 0) {
  const std::size_t offset = view.batch == 1 ? 0 : batch * view.batch_stride;
  return {data_of<T>(view) + offset, view.leading_dimension, transpose};
}

// c = a * b for one matrix, which has c's size.
template <typename T>
Product<T> product_of(Factor<T> a, Factor<T> b, const MatrixView& c, std::size_t depth) {
  return {.a = a,
          .b = b,
          .c = data_of<T>(c),
          .leading_dimension = c.leading_dimension,
          .rows = c.rows,
          .cols = c.cols,
          .depth = depth};
}

// y = f(y + bias) on one tile; preactivation receives the sum, if it has data.
template <typename T, typename Function>
void finish_tile(const T* bias, Function f, const MatrixView& y, const MatrixView& preactivation,
                 const Tile& tile) {
  for (std::size_t i = tile.row_begin; i < tile.row_end; ++i) {
    T* row = row_of<T>(y, i);
    if (bias && !preactivation.data) {
      for (std::size_t j = tile.col_begin; j < tile.col_end; ++j)
        row[j] = f.forward(row[j] + bias[j]);
      continue;
    }
    if (bias) {
      for (std::size_t j = tile.col_begin; j < tile.col_end; ++j) row[j] += bias[j];
    }
    if (preactivation.data) {
      std::copy(row + tile.col_begin, row + tile.col_end,
                row_of<T>(preactivation, i) + tile.col_begin);
    }
    for (std::size_t j = tile.col_begin; j < tile.col_end; ++j) row[j] = f.forward(row[j]);
  }
}

}  // namespace

template <typename T>
void linear_forward(Stream& stream, const Factor<T>& x, const LinearForward& call) {
  const Product<T> product =
      product_of(x, factor<T>(call.weight, Transpose::yes), call.y, call.weight.cols);
  if (!call.bias.data && !call.preactivation.data && call.activation == Activation::none) {
    return gemm<T>(stream, product);
  }
  for_activation(call.activation, [&](auto f) {
    gemm<T>(stream, product, [&, f](const Tile& tile) {
      finish_tile(data_of<T>(call.bias), f, call.y, call.preactivation, tile);
    });
  });
}

template void linear_forward(Stream&, const Factor<float>&, const LinearForward&);
template void linear_forward(Stream&, const Factor<double>&, const LinearForward&);

void EigenBackend::matmul(Stream& stream, const Matmul& call) {
  for_floating(call.a.dtype, "matmul", [&]<typename T>() {
    const std::size_t depth = call.transpose_a == Transpose::yes ? call.a.rows : call.a.cols;
    for (std::size_t i = 0; i < call.c.batch; ++i) {
      Product<T> product = product_of(factor<T>(call.a, call.transpose_a, i),
                                      factor<T>(call.b, call.transpose_b, i), call.c, depth);
      product.c += i * call.c.batch_stride;
      product.write = call.write;
      gemm<T>(stream, product);
    }
  });
}

void EigenBackend::linear_forward(Stream& stream, const LinearForward& call) {
  for_floating(call.x.dtype, "linear",
               [&]<typename T>() { kernels::linear_forward<T>(stream, factor<T>(call.x), call); });
}

void EigenBackend::linear_backward(Stream& stream, const LinearBackward& call) {
  for_floating(call.x.dtype, "linear backward", [&]<typename T>() {
    if (call.grad_bias.data) {
      column_sums<T>(stream, call.x.rows, call.weight.rows, data_of<T>(call.grad_bias),
                     [&](std::size_t row) { return row_of<T>(call.grad_z, row); });
    }
    if (call.grad_weight.data) {
      // [out, in] = (grad_z [batch, out])^T * x [batch, in]
      gemm<T>(stream, product_of(factor<T>(call.grad_z, Transpose::yes), factor<T>(call.x),
                                 call.grad_weight, call.x.rows));
    }
    if (call.grad_x.data) {
      // [batch, in] = grad_z [batch, out] * weight [out, in]
      gemm<T>(stream, product_of(factor<T>(call.grad_z), factor<T>(call.weight), call.grad_x,
                                 call.weight.rows));
    }
  });
}

}  // namespace lockstep::kernels
