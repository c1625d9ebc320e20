// A product as a caller of cuBLASLt describes it: D = epilogue(alpha * op(A) * op(B) + beta * C).
//
// All matrices are column-major: element (i, j) is at j * ld + i. op(A) is [m, k], op(B) [k, n],
// C and D [m, n].
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <optional>

// Behind cublasLtHandle_t; the name is the library's.
struct cublasLtContext {
  int gpu;
};

namespace emulated_gpu::cublas_lt {

// Behind cublasLtMatmulDesc_t.
struct Operation {
  std::int32_t compute_type = CUBLAS_COMPUTE_32F;
  std::int32_t scale_type = CUDA_R_32F;
  std::int32_t transpose_a = CUBLAS_OP_N;
  std::int32_t transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;  // of D's type
  void* aux = nullptr;   // receives what a GELU is applied to, in D's type
  std::int64_t aux_ld = 0;
};

// Behind cublasLtMatrixLayout_t.
struct Layout {
  std::uint32_t type = CUDA_R_32F;
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  std::int64_t ld = 0;
  std::int32_t batch_count = 1;
  std::int64_t batch_stride = 0;  // elements
};

// Behind cublasLtMatmulPreference_t.
struct Preference {
  std::uint64_t max_workspace_bytes = 0;
  std::uint32_t reduction_schemes = CUBLASLT_REDUCTION_SCHEME_MASK;  // that may be used
  std::uint32_t alignment_a = 256;
  std::uint32_t alignment_b = 256;
  std::uint32_t alignment_c = 256;
  std::uint32_t alignment_d = 256;
};

struct Problem {
  Operation operation;
  Layout a, b, c, d;

  std::size_t m() const { return d.rows; }
  std::size_t n() const { return d.cols; }
  std::size_t k() const { return operation.transpose_a == CUBLAS_OP_N ? a.cols : a.rows; }
};

// CUBLAS_STATUS_INVALID_VALUE: the descriptions contradict each other. CUBLAS_STATUS_NOT_SUPPORTED:
// the documentation says, or does not say otherwise, that cuBLASLt has no algorithm for it.
cublasStatus_t check_problem(const Problem& problem);

// The parts of the epilogues that this library has: CUBLASLT_EPILOGUE_BIAS, RELU_BIAS, GELU_BIAS
// and GELU_AUX_BIAS.
inline bool has_epilogue(const Problem& problem, cublasLtEpilogue_t part) {
  return (problem.operation.epilogue & part) == static_cast<std::uint32_t>(part);
}
inline bool adds_bias(const Problem& problem) {
  return has_epilogue(problem, CUBLASLT_EPILOGUE_BIAS);
}
inline bool keeps_gelu_input(const Problem& problem) {
  return has_epilogue(problem, CUBLASLT_EPILOGUE_GELU_AUX);
}
// True if what the epilogue reads and writes is aligned so. What a GELU is applied to is always
// written in whole vectors.
bool has_aligned_epilogue(const Problem& problem, std::size_t alignment);

// One of the ways to compute a product. They round differently, as cuBLASLt's do, and differ in
// what they need.
struct Algorithm {
  std::int32_t id;        // CUBLASLT_ALGO_CONFIG_ID
  std::size_t alignment;  // bytes, which all pointers and strides keep
  std::size_t workspace_bytes;
  std::int32_t num_splits;  // CUBLASLT_ALGO_CONFIG_SPLITK_NUM, which a caller may change
  // The fate of the elements that are left over when each part of the inner dimension gets the same
  // number of whole blocks.
  enum class Rest { summed, lost } rest;
};
// Nothing for one that this library did not make.
std::optional<Algorithm> find_algorithm(const cublasLtMatmulAlgo_t& handle);
// True if the algorithm can compute the product, wherever its matrices lie.
bool fits(const Algorithm& algorithm, const Problem& problem);

// The bytes of the inner dimension that number 66 reads at a time.
inline constexpr std::size_t kBlockBytes = 128;

// How a matrix lies in memory, without its address: the largest power of two, at most 16, that
// divides the bytes from one column, and one matrix of a batch, to the next.
std::size_t alignment_of(const Layout& layout);

std::size_t size_of(std::uint32_t type);

struct Operands {
  const void* alpha = nullptr;  // float, or double for float64 products
  const void* a = nullptr;
  const void* b = nullptr;
  const void* beta = nullptr;
  const void* c = nullptr;  // not read where beta is 0
  void* d = nullptr;
};

// The arithmetic of cublasLtMatmul. REQUIRES: check_problem(problem).
void compute(const Problem& problem, const Algorithm& algorithm, const Operands& operands);

}  // namespace emulated_gpu::cublas_lt
