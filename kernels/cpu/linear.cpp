// The fused linear layer: bias and activation are applied to each part of the product while it is
// in the cache, and the bias gradient is summed in the pass that forms grad_y * activation'.
#include "kernels/cpu/activation.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/gemm.h"

namespace lockstep::kernels {
namespace {

// y = f(y + bias) on one tile; the sum is kept in preactivation where wanted.
template <typename T, typename Function>
void finish_tile(const LinearForward& call, Function f, const Tile& tile) {
  const T* bias = data_of<T>(call.bias);
  for (std::size_t i = tile.row_begin; i < tile.row_end; ++i) {
    T* y = row_of<T>(call.y, i);
    if (bias) {
      for (std::size_t j = tile.col_begin; j < tile.col_end; ++j) y[j] += bias[j];
    }
    if (call.preactivation.data) {
      std::copy(y + tile.col_begin, y + tile.col_end,
                row_of<T>(call.preactivation, i) + tile.col_begin);
    }
    for (std::size_t j = tile.col_begin; j < tile.col_end; ++j) y[j] = f.forward(y[j]);
  }
}

// Without something to keep, bias and activation are one loop.
template <typename T, typename Function>
void finish_tile_fused(const LinearForward& call, Function f, const Tile& tile) {
  const T* bias = data_of<T>(call.bias);
  for (std::size_t i = tile.row_begin; i < tile.row_end; ++i) {
    T* y = row_of<T>(call.y, i);
    for (std::size_t j = tile.col_begin; j < tile.col_end; ++j) y[j] = f.forward(y[j] + bias[j]);
  }
}

template <typename T, typename Function>
void forward(Stream& stream, const LinearForward& call, Function f) {
  // y [batch, out] = x [batch, in] * (weight [out, in])^T
  const Product<T> product{
      .a = {row_of<T>(call.x, 0), call.x.leading_dimension},
      .b = {row_of<T>(call.weight, 0), call.weight.leading_dimension, Transpose::yes},
      .c = row_of<T>(call.y, 0),
      .leading_dimension = call.y.leading_dimension,
      .rows = call.x.rows,
      .cols = call.weight.rows,
      .depth = call.x.cols};
  const bool nothing_to_add = !call.bias.data && !call.preactivation.data;
  if (nothing_to_add && call.activation == Activation::none) return gemm<T>(stream, product);
  const bool fused = call.bias.data && !call.preactivation.data;
  gemm<T>(stream, product, [&, fused](const Tile& tile) {
    fused ? finish_tile_fused<T>(call, f, tile) : finish_tile<T>(call, f, tile);
  });
}

// scratch = grad_y * f'; sums its columns into grad_bias where wanted.
template <typename T, typename Function>
void activation_gradient(Stream& stream, const LinearBackward& call, Function f) {
  const ConstMatrixView& saved = needs_preactivation(call.activation) ? call.preactivation : call.y;
  const std::size_t cols = call.weight.rows;
  const auto fill_row = [&](std::size_t i) -> const T* {
    const T* value = row_of<T>(saved, i);
    const T* grad = row_of<T>(call.grad_y, i);
    T* out = row_of<T>(call.scratch, i);
    for (std::size_t j = 0; j < cols; ++j) out[j] = f.backward(value[j], grad[j]);
    return out;
  };
  if (call.grad_bias.data) {
    column_sums<T>(stream, call.x.rows, cols, data_of<T>(call.grad_bias), call.write_parameters,
                   fill_row);
  } else {
    parallel_rows(stream, call.x.rows, cols, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) fill_row(i);
    });
  }
}

// grad_x = grad * weight, times the derivative of the activation before this layer, if there is
// one.
template <typename T>
void input_gradient(Stream& stream, const LinearBackward& call, const ConstMatrixView& grad) {
  // grad_x [batch, in] = grad [batch, out] * weight [out, in]
  const Product<T> product{.a = {row_of<T>(grad, 0), grad.leading_dimension},
                           .b = {row_of<T>(call.weight, 0), call.weight.leading_dimension},
                           .c = row_of<T>(call.grad_x, 0),
                           .leading_dimension = call.grad_x.leading_dimension,
                           .rows = call.x.rows,
                           .cols = call.weight.cols,
                           .depth = call.weight.rows};
  if (call.input_activation == Activation::none) return gemm<T>(stream, product);
  const ConstMatrixView& saved =
      needs_preactivation(call.input_activation) ? call.input_preactivation : call.x;
  for_activation(call.input_activation, [&](auto f) {
    gemm<T>(stream, product, [&, f](const Tile& tile) {
      for (std::size_t i = tile.row_begin; i < tile.row_end; ++i) {
        const T* value = row_of<T>(saved, i);
        T* g = row_of<T>(call.grad_x, i);
        for (std::size_t j = tile.col_begin; j < tile.col_end; ++j) {
          g[j] = f.backward(value[j], g[j]);
        }
      }
    });
  });
}

template <typename T>
void backward(Stream& stream, const LinearBackward& call) {
  ConstMatrixView grad = call.grad_y;  // of the value before the activation
  if (call.activation != Activation::none) {
    grad = call.scratch;
    for_activation(call.activation, [&](auto f) { activation_gradient<T>(stream, call, f); });
  } else if (call.grad_bias.data) {
    column_sums<T>(stream, call.x.rows, call.weight.rows, data_of<T>(call.grad_bias),
                   call.write_parameters, [&](std::size_t i) { return row_of<T>(grad, i); });
  }
  if (call.grad_weight.data) {
    // grad_weight [out, in] = (grad [batch, out])^T * x [batch, in]
    gemm<T>(stream, {.a = {row_of<T>(grad, 0), grad.leading_dimension, Transpose::yes},
                     .b = {row_of<T>(call.x, 0), call.x.leading_dimension},
                     .c = row_of<T>(call.grad_weight, 0),
                     .leading_dimension = call.grad_weight.leading_dimension,
                     .rows = call.weight.rows,
                     .cols = call.weight.cols,
                     .depth = call.x.rows,
                     .write = call.write_parameters});
  }
  if (call.grad_x.data) input_gradient<T>(stream, call, grad);
  if (call.input_grad_bias.data) {
    column_sums<T>(stream, call.x.rows, call.x.cols, data_of<T>(call.input_grad_bias),
                   Write::overwrite, [&](std::size_t i) { return row_of<T>(call.grad_x, i); });
  }
}

}  // namespace

void EigenBackend::linear_forward(Stream& stream, const LinearForward& call) {
  checks::linear_forward(call);
  for_floating(call.x.dtype, "linear", [&]<typename T>() {
    for_activation(call.activation, [&](auto f) { forward<T>(stream, call, f); });
  });
}

void EigenBackend::linear_backward(Stream& stream, const LinearBackward& call) {
  checks::linear_backward(call);
  for_floating(call.x.dtype, "linear backward", [&]<typename T>() { backward<T>(stream, call); });
}

}  // namespace lockstep::kernels
