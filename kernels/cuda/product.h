// Matrix products by cuBLASLt, whose algorithms are chosen by timing them.
//
// The library offers several algorithms for a product, and its first one is sometimes ten times
// slower than the best. So they are timed when a product is first seen, into a separate output, and
// the fastest is remembered, for the process and in a file for later ones (product_file.h); the
// first training step on a machine takes some tenths of a second longer.
//   Sharing:      one table per GPU model, so that ranks as threads and logical devices use the
//                 same algorithms. If several threads meet the same new product, one of them times
//                 it.
//   Captures:     the library is not called while a stream is captured: a product that was not seen
//                 before is an error, so the step runs once before it is captured.
//   Calls:        each thread keeps the library's answers, descriptors and algorithm: a product
//                 that it has seen before takes no lock.
//   Bits:         a chosen algorithm gives the same bits in every call; a process that times again
//                 may choose another, which adds in another order. Within an UntunedScope
//                 (matmul_precision.h) the first algorithm that the library runs is used.
//   bfloat16:     a product of which a factor or the result is bfloat16, and any of float32 under
//                 MatmulPrecision::bf16, has bfloat16 factors. A factor that is so already, with
//                 aligned rows, is read where it lies; else it is copied. Where the library has no
//                 algorithm for such a product, it is made of float32 copies. A result in bfloat16
//                 gets a rounded bias, which the library takes from a copy.
//
// cuBLASLt takes column-major matrices. The bytes of a row-major [r, c] matrix are those of its
// transpose, column-major [c, r], with the same leading dimension. So
//   c = a * b          in row-major          is
//   c^T = b^T * a^T    in column-major,
// and nothing is copied: the library gets b's memory as its first factor, a's as its second, and
// writes c. Its m, n, k are c's columns, c's rows, and the inner dimension. A factor that is
// transposed here is transposed there too.
#pragma once

#include <cstddef>

#include "kernels/calls.h"

namespace lockstep::kernels::cuda {

struct Product {
  const char* operation = "matmul";  // the name that a user knows, for errors
  ConstMatrixView a;
  Transpose transpose_a = Transpose::no;
  ConstMatrixView b;
  Transpose transpose_b = Transpose::no;
  MatrixView c;  // activation(op(a) * op(b) + bias); without both it may be added to c
  Write write = Write::overwrite;
  ConstTensorView bias{};  // [columns of c], or no data; rounded to c's dtype before it is added
  Activation activation = Activation::none;
  MatrixView preactivation{};  // receives op(a) * op(b) + bias, if it has data
};

// Enqueues a product. With an inner size of 0 it is zero; an empty c is left alone.
// REQUIRES: shapes fit. Throws Error{Cuda} if the library runs none of its algorithms (the log says
// why: LOCKSTEP_LOG=debug), Error{State} for a new product in a capture.
void run(Stream& stream, const Product& product);

// True if running the product will allocate no memory: its factors need no copies, and the thread
// has run its like.
bool takes_no_memory(Stream& stream, const Product& product);

// c = activation(c + bias) by a kernel; preactivation receives c + bias, if it has data.
void finish(Stream& stream, const Product& product);

// True under MatmulPrecision::bf16.
bool takes_bfloat16();
// The type to which float32 factors are rounded in the precision in force.
enum class FactorType { float32, tf32, bfloat16 };
FactorType factor_type();
// Copies a matrix between float32 and bfloat16, rounded to nearest, or within one of them.
void convert_matrix(Stream& stream, ConstMatrixView from, MatrixView to);

// Zeroes every matrix of the batch.
void zero_matrix(Stream& stream, MatrixView y);

// For tests: returns the number of timed products; forget_products() starts afresh.
// REQUIRES: no product is being enqueued.
std::size_t num_timed_products();
void forget_products();

}  // namespace lockstep::kernels::cuda
