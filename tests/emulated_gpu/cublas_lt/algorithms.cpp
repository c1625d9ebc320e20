// The algorithms of a problem, and those that a test lets the library refuse.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "tests/emulated_gpu/cublas_lt/control.h"
#include "tests/emulated_gpu/cublas_lt/problem.h"
#include "tests/emulated_gpu/runtime.h"

namespace emulated_gpu::cublas_lt {
namespace {

// The fastest first, so that a caller normally gets the one with the most requirements. Number 66
// is wrong in the same way as the real one in some versions (kernels/cuda/product.cpp lists them):
// a caller must know and avoid it.
constexpr Algorithm kAlgorithms[] = {
    {10, 16, 64 * 1024, 4, Algorithm::Rest::summed},
    {66, 16, 0, 3, Algorithm::Rest::lost},
    {11, 1, 0, 1, Algorithm::Rest::summed},
    {12, 1, 0, 2, Algorithm::Rest::summed},
};
constexpr std::uint64_t kMark = 0x454d554c41544544;  // marks this library's algorithms

// Pointers count by their alignment: a heuristic does not read through them.
bool is_aligned(const void* pointer, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0;
}

bool fits(const Algorithm& algorithm, const Problem& problem) {
  for (const Layout* layout : {&problem.a, &problem.b, &problem.c, &problem.d}) {
    if (alignment_of(*layout) < std::min<std::size_t>(algorithm.alignment, 16)) return false;
  }
  return !adds_bias(problem) || is_aligned(problem.operation.bias, algorithm.alignment);
}

bool fits(const Algorithm& algorithm, const Preference& preference) {
  return algorithm.workspace_bytes <= preference.max_workspace_bytes &&
         algorithm.alignment <= std::min({preference.alignment_a, preference.alignment_b,
                                          preference.alignment_c, preference.alignment_d});
}

cublasLtMatmulHeuristicResult_t result_of(const Algorithm& algorithm) {
  cublasLtMatmulHeuristicResult_t result{};
  result.algo.data[0] = kMark;
  result.algo.data[1] = static_cast<std::uint64_t>(&algorithm - kAlgorithms);
  result.workspaceSize = algorithm.workspace_bytes;
  result.state = CUBLAS_STATUS_SUCCESS;
  result.wavesCount = 1;
  return result;
}

template <typename Object, typename Handle>
const Object& object(Handle handle) {
  return *reinterpret_cast<const Object*>(handle);
}

// An attribute of every algorithm; nothing for one that is not here.
std::optional<std::int32_t> configuration(const Algorithm& algorithm,
                                          cublasLtMatmulAlgoConfigAttributes_t name) {
  switch (name) {
    case CUBLASLT_ALGO_CONFIG_ID:
      return algorithm.id;
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
      return algorithm.num_splits;
    default:
      return std::nullopt;
  }
}

struct Refusals {
  std::mutex mutex;
  std::map<std::pair<Refused, std::int64_t>, cublasStatus_t> statuses;
};

Refusals& refusals() {
  static Refusals& instance = *new Refusals;
  return instance;
}

}  // namespace

void refuse(Refused what, std::int64_t number, cublasStatus_t status) {
  const std::lock_guard lock(refusals().mutex);
  refusals().statuses[{what, number}] = status;
}

void refuse_nothing() {
  const std::lock_guard lock(refusals().mutex);
  refusals().statuses.clear();
}

cublasStatus_t refusal_of(Refused what, std::int64_t number) {
  const std::lock_guard lock(refusals().mutex);
  const auto found = refusals().statuses.find({what, number});
  return found == refusals().statuses.end() ? CUBLAS_STATUS_SUCCESS : found->second;
}

const Algorithm* find_algorithm(const cublasLtMatmulAlgo_t& handle) {
  if (handle.data[0] != kMark || handle.data[1] >= std::size(kAlgorithms)) return nullptr;
  return &kAlgorithms[handle.data[1]];
}

}  // namespace emulated_gpu::cublas_lt

using namespace emulated_gpu::cublas_lt;

cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t operationDesc, cublasLtMatrixLayout_t Adesc,
    cublasLtMatrixLayout_t Bdesc, cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
    cublasLtMatmulPreference_t preference, int requestedAlgoCount,
    cublasLtMatmulHeuristicResult_t heuristicResultsArray[], int* returnAlgoCount) {
  if (lightHandle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (returnAlgoCount == nullptr || heuristicResultsArray == nullptr || requestedAlgoCount < 1) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *returnAlgoCount = 0;
  const Problem problem{object<Operation>(operationDesc), object<Layout>(Adesc),
                        object<Layout>(Bdesc), object<Layout>(Cdesc), object<Layout>(Ddesc)};
  const cublasStatus_t status = check_problem(problem);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  {
    // Since CUDA 13.3 a heuristic may make calls that break a capture.
    const std::lock_guard lock(emulated_gpu::state().mutex);
    if (emulated_gpu::check_call_is_safe() != cudaSuccess) return CUBLAS_STATUS_INTERNAL_ERROR;
  }
  const cublasStatus_t refusal = refusal_of(Refused::heuristic, problem.operation.epilogue);
  if (refusal != CUBLAS_STATUS_SUCCESS) return refusal;
  for (const Algorithm& algorithm : kAlgorithms) {
    if (*returnAlgoCount == requestedAlgoCount) break;
    if (!fits(algorithm, problem) || !fits(algorithm, object<Preference>(preference))) continue;
    heuristicResultsArray[(*returnAlgoCount)++] = result_of(algorithm);
  }
  return *returnAlgoCount > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t* algo, cublasLtMatmulAlgoConfigAttributes_t attr, void* buf,
    std::size_t sizeInBytes, std::size_t* sizeWritten) {
  const Algorithm* algorithm = algo == nullptr ? nullptr : find_algorithm(*algo);
  if (algorithm == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const cublasStatus_t refusal = refusal_of(Refused::configuration, algorithm->id);
  if (refusal != CUBLAS_STATUS_SUCCESS) return refusal;
  const std::optional<std::int32_t> value = configuration(*algorithm, attr);
  if (!value || buf == nullptr || sizeInBytes != sizeof(*value)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(buf, &*value, sizeof(*value));
  if (sizeWritten != nullptr) *sizeWritten = sizeof(*value);
  return CUBLAS_STATUS_SUCCESS;
}
