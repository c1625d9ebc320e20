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

// Rows of the table of types in the documentation of cublasLtMatmul, as far as this project asks.
bool has_known_types(const Problem& problem) {
  const bool is_wide = problem.operation.compute_type == CUBLAS_COMPUTE_64F;
  const auto type = static_cast<std::uint32_t>(is_wide ? CUDA_R_64F : CUDA_R_32F);
  const bool has_halves = problem.operation.compute_type == CUBLAS_COMPUTE_32F &&
                          problem.a.type == static_cast<std::uint32_t>(CUDA_R_16BF);
  const auto factor_type = has_halves ? static_cast<std::uint32_t>(CUDA_R_16BF) : type;
  if (problem.a.type != factor_type || problem.b.type != factor_type) return false;
  const bool has_half_result = has_halves && problem.d.type == factor_type;
  const auto result_type = has_half_result ? factor_type : type;
  if (problem.c.type != result_type || problem.d.type != result_type) return false;
  return static_cast<std::uint32_t>(problem.operation.scale_type) == type;
}

// The table gives float64 no bias type.
bool is_supported_epilogue(const Problem& problem) {
  switch (problem.operation.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
      return true;
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
      return problem.d.type != CUDA_R_64F;
    default:
      return false;
  }
}

bool is_aligned(const void* pointer, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0;
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
  // "Must be divisible by 8 and be no less than the number of rows in the output matrix."
  const std::int64_t aux_ld = operation.aux_ld;
  if (keeps_gelu_input(problem) && (aux_ld % 8 != 0 || aux_ld < static_cast<std::int64_t>(m))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  for (const Layout* layout : {&problem.a, &problem.b, &problem.c, &problem.d}) {
    if (layout->batch_count != problem.d.batch_count || layout->batch_count < 1) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  const bool is_supported = has_known_types(problem) && is_supported_epilogue(problem);
  return is_supported ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

bool has_aligned_epilogue(const Problem& problem, std::size_t alignment) {
  const std::size_t of_bias = std::max(alignment, size_of(problem.d.type));
  return (!adds_bias(problem) || is_aligned(problem.operation.bias, of_bias)) &&
         (!keeps_gelu_input(problem) || is_aligned(problem.operation.aux, 16));
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
