#include "tests/emulated_gpu/cublas_lt/problem.h"

#include <algorithm>
#include <iterator>

namespace emulated_gpu::cublas_lt {
namespace {

bool is_transposition(std::int32_t operation) {
  return operation == CUBLAS_OP_N || operation == CUBLAS_OP_T || operation == CUBLAS_OP_C;
}

bool has_shape(const Layout& layout, std::uint64_t rows, std::uint64_t cols) {
  return layout.rows == rows && layout.cols == cols &&
         layout.ld >= static_cast<std::int64_t>(layout.rows);
}

// Of the table of types in the documentation of cublasLtMatmul, the rows this project could use:
//   compute                       scale  A, B        C, D
//   32F, 32F_PEDANTIC             32F    32F         32F
//                                 32F    16BF, 16F   the same, or 32F
//   32F_FAST_TF32, _16BF, _16F    32F    32F         32F
//   64F, 64F_PEDANTIC             64F    64F         64F
bool has_known_types(const Problem& problem) {
  const std::uint32_t in = problem.a.type;
  const std::uint32_t out = problem.d.type;
  if (problem.b.type != in || problem.c.type != out) return false;
  switch (problem.operation.compute_type) {
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
      if (problem.operation.scale_type != CUDA_R_32F) return false;
      if (in == CUDA_R_16BF || in == CUDA_R_16F) return out == in || out == CUDA_R_32F;
      return in == CUDA_R_32F && out == CUDA_R_32F;
    case CUBLAS_COMPUTE_32F_FAST_TF32:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_16F:
      return problem.operation.scale_type == CUDA_R_32F && in == CUDA_R_32F && out == CUDA_R_32F;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
      return problem.operation.scale_type == CUDA_R_64F && in == CUDA_R_64F && out == CUDA_R_64F;
    default:
      return false;
  }
}

bool is_supported_epilogue(const Problem& problem) {
  const Operation& operation = problem.operation;
  if (operation.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return true;
  // The table gives float64 no bias type. "Bias vector elements are the same type as the elements
  // of output matrix."
  return adds_bias(problem) && problem.d.type != CUDA_R_64F &&
         (operation.bias_type == -1 ||
          static_cast<std::uint32_t>(operation.bias_type) == problem.d.type);
}

}  // namespace

cublasStatus_t check_problem(const Problem& problem) {
  const Operation& operation = problem.operation;
  if (!is_transposition(operation.transpose_a) || !is_transposition(operation.transpose_b)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool a_is_plain = operation.transpose_a == CUBLAS_OP_N;
  const bool b_is_plain = operation.transpose_b == CUBLAS_OP_N;
  const std::uint64_t m = problem.m(), n = problem.n(), k = problem.k();
  if (m == 0 || n == 0 || k == 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (!has_shape(problem.a, a_is_plain ? m : k, a_is_plain ? k : m) ||
      !has_shape(problem.b, b_is_plain ? k : n, b_is_plain ? n : k) ||
      !has_shape(problem.c, m, n) || !has_shape(problem.d, m, n)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  for (const Layout* layout : {&problem.a, &problem.b, &problem.c, &problem.d}) {
    if (layout->batch_count != problem.d.batch_count || layout->batch_count < 1) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (layout->order != CUBLASLT_ORDER_COL) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const bool is_supported = operation.transpose_c == CUBLAS_OP_N && has_known_types(problem) &&
                            is_supported_epilogue(problem) &&
                            (operation.pointer_mode == CUBLASLT_POINTER_MODE_HOST ||
                             operation.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE);
  return is_supported ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

std::size_t size_of(std::uint32_t type) {
  switch (type) {
    case CUDA_R_64F:
      return 8;
    case CUDA_R_32F:
      return 4;
    default:
      return 2;
  }
}

std::size_t alignment_of(const Layout& layout) {
  const std::size_t size = size_of(layout.type);
  const auto divides = [&](std::size_t bytes) {
    const bool columns = static_cast<std::size_t>(layout.ld) * size % bytes == 0;
    const bool matrices = static_cast<std::size_t>(layout.batch_stride) * size % bytes == 0;
    return columns && (layout.batch_count == 1 || matrices);
  };
  std::size_t alignment = 16;
  while (!divides(alignment)) alignment /= 2;
  return alignment;
}

}  // namespace emulated_gpu::cublas_lt
