// cublasLtMatmul: checks a call, and queues the product on the stream.
#include <algorithm>
#include <cstring>

#include "tests/emulated_gpu/cublas_lt/control.h"
#include "tests/emulated_gpu/cublas_lt/problem.h"
#include "tests/emulated_gpu/runtime.h"

using namespace emulated_gpu;
using namespace emulated_gpu::cublas_lt;

namespace {

bool is_aligned(const void* pointer, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0;
}

// True if the algorithm may run on these addresses. Each matrix must be aligned to its elements.
bool accepts(const Algorithm& algorithm, const Problem& problem, const Operands& operands) {
  const auto accepts_matrix = [&](const Layout& layout, const void* data) {
    return is_aligned(data, std::max(algorithm.alignment, size_of(layout.type))) &&
           alignment_of(layout) >= algorithm.alignment;
  };
  return accepts_matrix(problem.a, operands.a) && accepts_matrix(problem.b, operands.b) &&
         accepts_matrix(problem.c, operands.c) && accepts_matrix(problem.d, operands.d) &&
         has_aligned_epilogue(problem, algorithm.alignment);
}

cublasStatus_t check_pointers(const Problem& problem, const Operands& operands) {
  const bool has_all = operands.alpha != nullptr && operands.beta != nullptr &&
                       operands.a != nullptr && operands.b != nullptr && operands.d != nullptr &&
                       (!adds_bias(problem) || problem.operation.bias != nullptr) &&
                       (!keeps_gelu_input(problem) || problem.operation.aux != nullptr);
  return has_all ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

// Alpha and beta are on the host and read by the call.
struct Scalars {
  double alpha = 0, beta = 0;  // room for either type
};

// The kernels of an algorithm are loaded together, at its first product.
const void* kernel_of(const Algorithm& algorithm) {
  static const char kernels[128] = {};
  return &kernels[algorithm.id % 128];
}

cublasStatus_t queue(cudaStream_t handle, int gpu, const Problem& problem,
                     const Algorithm& algorithm, Operands operands, void* workspace) {
  Scalars scalars;
  const std::size_t size = problem.operation.scale_type == CUDA_R_64F ? 8 : 4;
  std::memcpy(&scalars.alpha, operands.alpha, size);
  std::memcpy(&scalars.beta, operands.beta, size);
  load_kernel(kernel_of(algorithm));
  const std::lock_guard lock(state().mutex);
  const auto stream = find_stream(handle);
  if (!stream || stream->gpu != gpu) return CUBLAS_STATUS_EXECUTION_FAILED;
  const cudaError_t error = submit(*stream, [=] {
    // Two products that share a workspace at the same time spoil each other: a race to be seen.
    if (workspace != nullptr) std::memset(workspace, 0xFF, algorithm.workspace_bytes);
    Operands with_scalars = operands;
    with_scalars.alpha = &scalars.alpha;
    with_scalars.beta = &scalars.beta;
    compute(problem, algorithm, with_scalars);
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace

cublasStatus_t CUBLASWINAPI cublasLtMatmul(
    cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t computeDesc, const void* alpha,
    const void* A, cublasLtMatrixLayout_t Adesc, const void* B, cublasLtMatrixLayout_t Bdesc,
    const void* beta, const void* C, cublasLtMatrixLayout_t Cdesc, void* D,
    cublasLtMatrixLayout_t Ddesc, const cublasLtMatmulAlgo_t* algo, void* workspace,
    std::size_t workspaceSizeInBytes, cudaStream_t stream) {
  if (lightHandle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const auto layout = [](cublasLtMatrixLayout_t handle) {
    return *reinterpret_cast<const Layout*>(handle);
  };
  const Problem problem{*reinterpret_cast<const Operation*>(computeDesc), layout(Adesc),
                        layout(Bdesc), layout(Cdesc), layout(Ddesc)};
  const Operands operands{alpha, A, B, beta, C, D};
  if (const auto status = check_problem(problem); status != CUBLAS_STATUS_SUCCESS) return status;
  if (const auto status = check_pointers(problem, operands); status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  const auto algorithm = algo == nullptr ? std::nullopt : find_algorithm(*algo);
  if (!algorithm) return CUBLAS_STATUS_INVALID_VALUE;
  const cublasStatus_t refusal = refusal_of(Refused::product, algorithm->id);
  if (refusal != CUBLAS_STATUS_SUCCESS) return refusal;
  // "Pointer must be 16B aligned."
  if (workspaceSizeInBytes > 0 && !is_aligned(workspace, 16)) return CUBLAS_STATUS_INVALID_VALUE;
  if (algorithm->workspace_bytes > (workspace == nullptr ? 0 : workspaceSizeInBytes)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (!fits(*algorithm, problem) || !accepts(*algorithm, problem, operands))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return queue(stream, lightHandle->gpu, problem, *algorithm, operands,
               algorithm->workspace_bytes > 0 ? workspace : nullptr);
}
