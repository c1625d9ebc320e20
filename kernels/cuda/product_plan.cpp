#include "kernels/cuda/product_plan.h"

#include <algorithm>

#include "engine/runtime/cuda/cuda_stream.h"
#include "kernels/cuda/alignment.h"
#include "kernels/cuda/epilogues.h"
#include "kernels/cuda/product_description.h"
#include "kernels/cuda/product_workspace.h"

namespace lockstep::kernels::cuda {
namespace {

// Algorithms that give wrong results. cuBLAS 12.6.3 to 13.7: those with the number 66, on Hopper
// and newer GPUs, that split the inner dimension into parts which do not divide it; the release
// notes of CUDA 13.4 say so. They are left out of every version: they are few, and others are as
// fast.
bool is_known_to_be_wrong(const cublasLtMatmulAlgo_t& algorithm, std::size_t depth) {
  constexpr std::int32_t kAffected = 66;
  std::int32_t id = 0;
  std::int32_t num_splits = 0;
  std::size_t num_written = 0;
  CUBLAS_CHECK(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_ID, &id,
                                                    sizeof(id), &num_written));
  if (id != kAffected) return false;
  CUBLAS_CHECK(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                                    &num_splits, sizeof(num_splits), &num_written));
  return num_splits > 1 && depth % static_cast<std::size_t>(num_splits) != 0;
}

}  // namespace

std::vector<ProductPlan> candidates(Stream& stream, const Product& product,
                                    cublasLtEpilogue_t epilogue, int max_candidates) {
  const int gpu = runtime::cuda::cuda_stream(stream).gpu();
  const runtime::cuda::CurrentGpu current(gpu);
  const ProductDescription description(product, epilogue);
  MatmulPreference preference;
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kProductWorkspaceBytes);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(product.b));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(product.a));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(product.c));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(product.c));
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(max_candidates));
  int num_found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      cublas_lt(gpu), description.matmul.get(), description.first.get(), description.second.get(),
      description.result.get(), description.result.get(), preference.get(), max_candidates,
      found.data(), &num_found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return {};
  check_cublas(status, "cublasLtMatmulAlgoGetHeuristic");
  std::vector<ProductPlan> result;
  for (int i = 0; i < num_found; ++i) {
    const cublasLtMatmulHeuristicResult_t& one = found[static_cast<std::size_t>(i)];
    if (one.state == CUBLAS_STATUS_SUCCESS && one.workspaceSize <= kProductWorkspaceBytes &&
        !is_known_to_be_wrong(one.algo, inner_size(product))) {
      result.push_back({epilogue, one.algo, one.workspaceSize, 0});
    }
  }
  return result;
}

bool is_runnable(Stream& stream, const Product& product, const ProductPlan& plan) {
  const std::vector<cublasLtEpilogue_t> possible = epilogues_for(product);
  if (std::find(possible.begin(), possible.end(), plan.epilogue) == possible.end()) return false;
  const int gpu = runtime::cuda::cuda_stream(stream).gpu();
  const runtime::cuda::CurrentGpu current(gpu);
  const ProductDescription description(product, plan.epilogue);
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(
      cublas_lt(gpu), description.matmul.get(), description.first.get(), description.second.get(),
      description.result.get(), description.result.get(), &plan.algorithm, &result);
  return status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= plan.workspace_bytes &&
         plan.workspace_bytes <= kProductWorkspaceBytes &&
         !is_known_to_be_wrong(plan.algorithm, inner_size(product));
}

}  // namespace lockstep::kernels::cuda
