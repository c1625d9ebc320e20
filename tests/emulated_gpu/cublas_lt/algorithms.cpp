// The algorithms of a problem, and those that a test lets the library refuse.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "tests/emulated_gpu/cublas_lt/control.h"
#include "tests/emulated_gpu/cublas_lt/problem.h"
#include "tests/emulated_gpu/runtime.h"

namespace emulated_gpu::cublas_lt {
namespace {

// The fastest first, so that a caller normally gets the one with the most requirements. Number 66
// is wrong in the same way as the real one in some versions (kernels/cuda/product_plans.cpp lists
// them): a caller must know and avoid it.
constexpr Algorithm kAlgorithms[] = {
    {10, 16, 64 * 1024, 4, Algorithm::Rest::summed},
    {66, 16, 0, 3, Algorithm::Rest::lost},
    {11, 1, 0, 1, Algorithm::Rest::summed},
    {12, 1, 0, 2, Algorithm::Rest::summed},
};
constexpr std::uint64_t kMark = 0x454d554c41544544;  // marks this library's algorithms

// A cublasLtMatmulAlgo_t of this library is the mark and these numbers.
enum Word : std::size_t { kMarkWord, kIndexWord, kSplitsWord, kSchemeWord };

bool has_bfloat16_factors(const Problem& problem) {
  return problem.a.type == CUDA_R_16BF;
}

Algorithm divided(Algorithm algorithm, std::int32_t num_splits) {
  algorithm.num_splits = num_splits;
  if (algorithm.id == 66) algorithm.workspace_bytes = num_splits > 1 ? 1024ul * num_splits : 0;
  return algorithm;
}

// All that the heuristic knows for a problem. A bfloat16 product that is deep and has few results
// gets number 66 in so many divisions that a caller who asks for 16 sees nothing else, and none of
// them divides the inner dimension: so the log of an H200 is read, on which ResNets found no
// algorithm for such products.
std::vector<Algorithm> configurations(const Problem& problem) {
  constexpr std::int32_t kMaxSplits = 40;
  const bool is_deep = problem.k() >= 8 * std::max(problem.m(), problem.n());
  std::vector<Algorithm> all;
  for (const Algorithm& algorithm : kAlgorithms) {
    if (algorithm.id != 66 || !has_bfloat16_factors(problem)) {
      all.push_back(algorithm);
      if (algorithm.id == 66) all.push_back(divided(algorithm, 1));
      continue;
    }
    for (std::int32_t splits = 3; is_deep && splits <= kMaxSplits; ++splits) {
      if (problem.k() % static_cast<std::size_t>(splits) != 0) {
        all.push_back(divided(algorithm, splits));
      }
    }
    all.push_back(divided(algorithm, 1));
  }
  return all;
}

bool lies_aligned(const Algorithm& algorithm, const Problem& problem) {
  for (const Layout* layout : {&problem.a, &problem.b, &problem.c, &problem.d}) {
    if (alignment_of(*layout) < std::min<std::size_t>(algorithm.alignment, 16)) return false;
  }
  // Pointers count by their alignment: a heuristic does not read through them.
  return has_aligned_epilogue(problem, algorithm.alignment);
}

bool fits(const Algorithm& algorithm, const Preference& preference) {
  constexpr std::uint32_t kScheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;  // of every split one
  if (algorithm.num_splits > 1 && (preference.reduction_schemes & kScheme) == 0) return false;
  return algorithm.workspace_bytes <= preference.max_workspace_bytes &&
         algorithm.alignment <= std::min({preference.alignment_a, preference.alignment_b,
                                          preference.alignment_c, preference.alignment_d});
}

std::uint32_t scheme_of(const Algorithm& algorithm) {
  return algorithm.num_splits > 1 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                  : CUBLASLT_REDUCTION_SCHEME_NONE;
}

cublasLtMatmulHeuristicResult_t result_of(const Algorithm& algorithm) {
  cublasLtMatmulHeuristicResult_t result{};
  const auto* const found = std::ranges::find(kAlgorithms, algorithm.id, &Algorithm::id);
  result.algo.data[kMarkWord] = kMark;
  result.algo.data[kIndexWord] = static_cast<std::uint64_t>(found - std::begin(kAlgorithms));
  result.algo.data[kSplitsWord] = static_cast<std::uint64_t>(algorithm.num_splits);
  result.algo.data[kSchemeWord] = scheme_of(algorithm);
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

std::optional<Algorithm> find_algorithm(const cublasLtMatmulAlgo_t& handle) {
  const std::uint64_t index = handle.data[kIndexWord];
  if (handle.data[kMarkWord] != kMark || index >= std::size(kAlgorithms)) return std::nullopt;
  return divided(kAlgorithms[index], static_cast<std::int32_t>(handle.data[kSplitsWord]));
}

bool fits(const Algorithm& algorithm, const Problem& problem) {
  const bool has_type = !has_bfloat16_factors(problem) || algorithm.id == 66 || algorithm.id == 11;
  const auto num_splits = static_cast<std::size_t>(algorithm.num_splits);
  return has_type && algorithm.num_splits >= 1 && num_splits <= problem.k() &&
         lies_aligned(algorithm, problem);
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
  for (const auto& [what, number] :
       {std::pair<Refused, std::int64_t>{Refused::heuristic, problem.operation.epilogue},
        {Refused::factors, problem.a.type}}) {
    const cublasStatus_t refusal = refusal_of(what, number);
    if (refusal != CUBLAS_STATUS_SUCCESS) return refusal;
  }
  for (const Algorithm& algorithm : configurations(problem)) {
    if (*returnAlgoCount == requestedAlgoCount) break;
    if (!fits(algorithm, problem) || !fits(algorithm, object<Preference>(preference))) continue;
    heuristicResultsArray[(*returnAlgoCount)++] = result_of(algorithm);
  }
  return *returnAlgoCount > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t* algo, cublasLtMatmulAlgoConfigAttributes_t attr, void* buf,
    std::size_t sizeInBytes, std::size_t* sizeWritten) {
  const auto algorithm = algo == nullptr ? std::nullopt : find_algorithm(*algo);
  if (!algorithm) return CUBLAS_STATUS_INVALID_VALUE;
  const cublasStatus_t refusal = refusal_of(Refused::configuration, algorithm->id);
  if (refusal != CUBLAS_STATUS_SUCCESS) return refusal;
  const std::optional<std::int32_t> value = configuration(*algorithm, attr);
  if (!value || buf == nullptr || sizeInBytes != sizeof(*value)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(buf, &*value, sizeof(*value));
  if (sizeWritten != nullptr) *sizeWritten = sizeof(*value);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoConfigSetAttribute(
    cublasLtMatmulAlgo_t* algo, cublasLtMatmulAlgoConfigAttributes_t attr, const void* buf,
    std::size_t sizeInBytes) {
  std::uint32_t value = 0;
  const bool has_value = buf != nullptr && sizeInBytes == sizeof(value);
  if (algo == nullptr || !find_algorithm(*algo) || !has_value) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&value, buf, sizeof(value));
  switch (attr) {
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
      algo->data[kSplitsWord] = value;
      return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
      algo->data[kSchemeWord] = value;
      return CUBLAS_STATUS_SUCCESS;
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoCheck(
    cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t operationDesc, cublasLtMatrixLayout_t Adesc,
    cublasLtMatrixLayout_t Bdesc, cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
    const cublasLtMatmulAlgo_t* algo, cublasLtMatmulHeuristicResult_t* result) {
  if (lightHandle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const auto algorithm = algo == nullptr ? std::nullopt : find_algorithm(*algo);
  if (!algorithm || result == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const Problem problem{object<Operation>(operationDesc), object<Layout>(Adesc),
                        object<Layout>(Bdesc), object<Layout>(Cdesc), object<Layout>(Ddesc)};
  const cublasStatus_t status = check_problem(problem);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (algo->data[kSchemeWord] != scheme_of(*algorithm)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!fits(*algorithm, problem)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const cublasLtMatmulAlgo_t kept = result->algo;  // which this call never changes
  *result = result_of(*algorithm);
  result->algo = kept;
  return CUBLAS_STATUS_SUCCESS;
}
