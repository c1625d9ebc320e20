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
  checks::matmul(a, transpose_a, b, transpose_b, c);
  for_floating(a.dtype, "matmul", [&]<typename T>() {
    for (std::size_t i = 0; i < c.batch; ++i) {
      gemm<T>(stream, {.a = factor<T>(a, transpose_a, i),
                       .b = factor<T>(b, transpose_b, i),
                       .c = static_cast<T*>(c.data) + i * c.batch_stride,
                       .leading_dimension = c.leading_dimension,
                       .rows = c.rows,
                       .cols = c.cols,
                       .depth = transpose_a == Transpose::yes ? a.rows : a.cols,
                       .write = write});
    }
  });
}

}  // namespace lockstep::kernels
