#include "kernels/cuda/checks.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/tuner.h"

namespace lockstep::kernels::cuda {

void CudaBackend::matmul(Stream& stream, ConstMatrixView a, Transpose transpose_a,
                         ConstMatrixView b, Transpose transpose_b, MatrixView c, Write write) {
  checks::matmul(a, transpose_a, b, transpose_b, c);
  require_floating("matmul", a.dtype);
  Product product;
  product.a = a;
  product.transpose_a = transpose_a;
  product.b = b;
  product.transpose_b = transpose_b;
  product.c = c;
  product.write = write;
  run(stream, product);
}

}  // namespace lockstep::kernels::cuda
