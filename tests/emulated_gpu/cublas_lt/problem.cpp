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

bool is_known_epilogue(std::uint32_t epilogue) {
  constexpr std::uint32_t kKnown[] = {CUBLASLT_EPILOGUE_DEFAULT,  CUBLASLT_EPILOGUE_BIAS,
                                      CUBLASLT_EPILOGUE_RELU,     CUBLASLT_EPILOGUE_RELU_BIAS,
                                      CUBLASLT_EPILOGUE_RELU_AUX, CUBLASLT_EPILOGUE_RELU_AUX_BIAS,
                                      CUBLASLT_EPILOGUE_GELU,     CUBLASLT_EPILOGUE_GELU_BIAS,
                                      CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                                      CUBLASLT_EPILOGUE_DRELU,    CUBLASLT_EPILOGUE_DRELU_BGRAD,
                                      CUBLASLT_EPILOGUE_DGELU,    CUBLASLT_EPILOGUE_DGELU_BGRAD,
                                      CUBLASLT_EPILOGUE_BGRADA,   CUBLASLT_EPILOGUE_BGRADB};
  return std::find(std::begin(kKnown), std::end(kKnown), epilogue) != std::end(kKnown);
}

bool is_supported_epilogue(const Problem& problem) {
  const Operation& operation = problem.operation;
  if (!is_known_epilogue(operation.epilogue)) return false;
  if (operation.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return true;
  // The table gives float64 no bias type and no epilogue.
  if (problem.d.type == CUDA_R_64F) return false;
  const EpilogueParts parts = parts_of(operation.epilogue);
  // "Bias vector elements are the same type as the elements of output matrix", and of the other
  // types in which a GELU input may be kept none is in the table above.
  const auto is_type_of_d = [&](std::int32_t type) {
    return type == -1 || static_cast<std::uint32_t>(type) == problem.d.type;
  };
  if (parts.uses_bias_pointer() && !is_type_of_d(operation.bias_type)) return false;
  if (!parts.has_aux) return true;
  if (!is_type_of_d(operation.aux_type)) return false;
  // CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: for a ReLU mask "must be divisible by 128 and be no less
  // than the number of rows in the output matrix", in bits; for a GELU input "divisible by 8", in
  // elements. AUX_BATCH_STRIDE likewise.
  const std::int64_t unit = parts.is_relu || parts.is_relu_gradient ? 128 : 8;
  return operation.aux_ld % unit == 0 && operation.aux_batch_stride % unit == 0 &&
         operation.aux_ld >= static_cast<std::int64_t>(problem.d.rows);
}

}  // namespace

EpilogueParts parts_of(std::uint32_t epilogue) {
  EpilogueParts parts;
  parts.adds_bias = (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
  parts.is_relu = (epilogue & CUBLASLT_EPILOGUE_RELU) != 0;
  parts.is_gelu = (epilogue & CUBLASLT_EPILOGUE_GELU) != 0;
  parts.is_relu_gradient = (epilogue & 8) != 0;
  parts.writes_bias_gradient = (epilogue & 16) != 0;
  parts.is_gelu_gradient = (epilogue & 64) != 0;
  parts.has_aux = (epilogue & 128) != 0;
  parts.sums_a = epilogue == CUBLASLT_EPILOGUE_BGRADA;
  parts.sums_b = epilogue == CUBLASLT_EPILOGUE_BGRADB;
  return parts;
}

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
