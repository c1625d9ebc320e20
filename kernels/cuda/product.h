// One matrix product with what happens to it on its way into memory.
//
// Row-major through column-major: cuBLASLt takes column-major matrices. The bytes of a row-major
// [r, c] matrix are those of its transpose, column-major [c, r], with the same leading dimension.
// So
//   c = a * b          in row-major          is
//   c^T = b^T * a^T    in column-major,
// and nothing is copied: the library gets b's memory as its first factor, a's as its second, and
// writes c. Its m, n, k are c's columns, c's rows, and the inner dimension. A factor that is
// transposed here is transposed there.
#pragma once

#include "kernels/backend.h"

namespace lockstep::kernels::cuda {

struct Product {
  const char* operation = "matmul";  // what a user knows it by, for errors
  ConstMatrixView a;
  Transpose transpose_a = Transpose::no;
  ConstMatrixView b;
  Transpose transpose_b = Transpose::no;
  MatrixView c;  // op(a) * op(b), finished
  Write write = Write::overwrite;

  enum class Finish {
    none,
    forward,        // c = activation(c + bias)
    gradient,       // c = c * activation'(saved)
    bias_gradient,  // and column_sums = column sums of a. REQUIRES: transpose_a
    gradient_sums,  // as gradient, and column_sums = column sums of c
  } finish = Finish::none;
  Activation activation = Activation::none;

  // For forward:
  ConstTensorView bias;      // [cols], or no data
  MatrixView preactivation;  // as c; written where it has data
  // `wanted`: the layer after this one can use a mask; `written` is that wish with memory for it.
  enum class Mask { none, wanted, written } mask_use = Mask::none;
  TensorView mask;  // relu_mask_bytes() (epilogues.h)

  // For gradient and gradient_sums:
  ConstMatrixView saved;       // as c: the value after the activation, for GELU the one before
  ConstTensorView saved_mask;  // ReLU: what `mask` was in the forward product, or no data

  // For gradient_sums and bias_gradient; overwritten or added to as c is. A product that is only
  // asked about (plan_for) may have no data here, and none in c.
  TensorView column_sums;  // [columns]
};

inline bool has_gradient(const Product& product) {
  return product.finish == Product::Finish::gradient ||
         product.finish == Product::Finish::gradient_sums;
}

inline bool has_column_sums(const Product& product) {
  return product.finish == Product::Finish::gradient_sums ||
         product.finish == Product::Finish::bias_gradient;
}

inline std::size_t inner_size(const Product& product) {
  return product.transpose_a == Transpose::yes ? product.a.rows : product.a.cols;
}

}  // namespace lockstep::kernels::cuda
