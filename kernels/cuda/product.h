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
//
// An epilogue is what the library does to a result while it is in registers. Each spares a pass
// over memory and a launch. Which one serves which finish, in the library's words (D [m, n] is
// c^T):
//   bias                BIAS, RELU_BIAS, ...: the bias has an entry per row of D, so per column of
//   c ReLU, for backward  RELU_AUX: also writes a bit per element, set where a value got through
//   GELU(tanh)          GELU_AUX: also writes the values before
//   their gradients     DRELU, DGELU: read those back and multiply by the derivative
//   bias gradient       BGRADB: sums the second factor over k, an entry per column of D
// cuBLASLt has them for float32, not for float64. Its ReLU makes 0 of a NaN, where kernels of ours
// and the CPU keep it: a NaN in a layer with that epilogue shows in its weights, not in the loss.
#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <vector>

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
  } finish = Finish::none;
  Activation activation = Activation::none;

  // For forward:
  ConstTensorView bias;      // [cols], or no data
  MatrixView preactivation;  // as c; written where it has data
  // `wanted`: the layer after this one can use a mask; `written` is that wish with memory for it.
  enum class Mask { none, wanted, written } mask_use = Mask::none;
  TensorView mask;  // relu_mask_bytes()

  // For gradient:
  ConstMatrixView saved;       // as c: the value after the activation, for GELU the one before
  ConstTensorView saved_mask;  // ReLU: what `mask` was in the forward product, or no data

  // For bias_gradient:
  TensorView column_sums;  // [columns of a]; overwritten or added to as c is
};

std::size_t inner_size(const Product& product);

// The bits of a mask for c [rows, cols]: each row rounded up to 128, as cuBLASLt requires.
std::size_t relu_mask_bytes(std::size_t rows, std::size_t cols);

// The epilogues that can take part in a product, the one that does most first; the last is
// CUBLASLT_EPILOGUE_DEFAULT, which leaves everything to kernels of our own.
std::vector<cublasLtEpilogue_t> epilogues_for(const Product& product);

// Everything that decides which algorithms a product has and how fast they are, and nothing else:
// sizes, strides, alignments, types, precision, finish; no addresses. Pointers count by whether
// they and the rows after them are aligned to 4, 8 or 16 bytes, so that a shard of a batch that
// begins at another row is the same product.
using ProductKey = std::array<std::int64_t, 21>;
ProductKey key_of(const Product& product);

// A way to compute a product.
struct ProductPlan {
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace_bytes = 0;
  double microseconds = 0;  // with what the epilogue leaves to do; 0 where it was not timed
};

// The library's algorithms for a product and an epilogue, the one it thinks fastest first; none
// where it does not support the combination. Host work only: allowed during a capture.
std::vector<ProductPlan> candidates(Stream& stream, const Product& product,
                                    cublasLtEpilogue_t epilogue, int max_candidates);

// Whether a plan, read from a file, fits this product on this GPU.
bool is_runnable(Stream& stream, const Product& product, const ProductPlan& plan);

enum class Launched { yes, refused };
// Enqueues the product, then what the epilogue leaves to do. `refused`: the library does not run
// this algorithm on these addresses.
Launched try_launch(Stream& stream, const Product& product, const ProductPlan& plan);

}  // namespace lockstep::kernels::cuda
