#include "kernels/cpu/checks.h"
#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/gemm.h"

namespace lockstep::kernels {
namespace {

template <typename T>
Factor<T> factor(const ConstMatrixView& view, Transpose transpose, std::size_t batch) {
  const std::size_t offset = view.batch == 1 ? 0 : batch * view.batch_stride;
  return {static_cast<const T*>(view.data) + offset, view.leading_dimension, transpose};
}

}  // namespace

void EigenBackend::matmul(Stream& stream, ConstMatrixView a, Transpose transpose_a,
                          ConstMatrixView b, Transpose transpose_b, MatrixView c, Write write) {
  require_dtype("matmul", "b", b.dtype, a.dtype);
  require_dtype("matmul", "c", c.dtype, a.dtype);
  const bool a_turned = transpose_a == Transpose::yes;
  const bool b_turned = transpose_b == Transpose::yes;
  const std::size_t depth = a_turned ? a.rows : a.cols;
  require_size("matmul", "the inner dimension of b", b_turned ? b.cols : b.rows, depth);
  require_size("matmul", "the rows of c", c.rows, a_turned ? a.cols : a.rows);
  require_size("matmul", "the columns of c", c.cols, b_turned ? b.rows : b.cols);
  require((a.batch == 1 || a.batch == c.batch) && (b.batch == 1 || b.batch == c.batch),
          ErrorCode::Shape, "matmul", "batch sizes {} and {} do not give {}", a.batch, b.batch,
          c.batch);
  for_floating(a.dtype, "matmul", [&]<typename T>() {
    for (std::size_t i = 0; i < c.batch; ++i) {
      gemm<T>(stream, {.a = factor<T>(a, transpose_a, i),
                       .b = factor<T>(b, transpose_b, i),
                       .c = static_cast<T*>(c.data) + i * c.batch_stride,
                       .leading_dimension = c.leading_dimension,
                       .rows = c.rows,
                       .cols = c.cols,
                       .depth = depth,
                       .write = write});
    }
  });
}

}  // namespace lockstep::kernels
