#include "engine/core/error.h"
#include "kernels/cuda/checks.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/tuner.h"

namespace lockstep::kernels::cuda {

void CudaBackend::matmul(Stream& stream, ConstMatrixView a, Transpose transpose_a,
                         ConstMatrixView b, Transpose transpose_b, MatrixView c, Write write) {
  const auto* name = "matmul";
  require_dtype(name, "b", b.dtype, a.dtype);
  require_dtype(name, "c", c.dtype, a.dtype);
  const bool a_turned = transpose_a == Transpose::yes;
  const bool b_turned = transpose_b == Transpose::yes;
  const std::size_t depth = a_turned ? a.rows : a.cols;
  require_size(name, "the inner dimension of b", b_turned ? b.cols : b.rows, depth);
  require_size(name, "the rows of c", c.rows, a_turned ? a.cols : a.rows);
  require_size(name, "the columns of c", c.cols, b_turned ? b.rows : b.cols);
  require((a.batch == 1 || a.batch == c.batch) && (b.batch == 1 || b.batch == c.batch),
          ErrorCode::Shape, name, "batch sizes {} and {} do not give {}", a.batch, b.batch,
          c.batch);
  if (a.dtype != DType::float32 && a.dtype != DType::float64) fail_dtype(name, a.dtype);
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
