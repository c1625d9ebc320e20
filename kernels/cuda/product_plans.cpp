#include "kernels/cuda/product_plans.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "engine/core/log.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "kernels/cuda/launch.h"

namespace lockstep::kernels::cuda {
namespace {

using runtime::cuda::cuda_stream;
using runtime::cuda::CurrentGpu;

// The library may divide the inner dimension into parts, which run at the same time.
enum class Parts { several, one };

// Algorithms with this number lose elements of the inner dimension unless each part is as long as
// the others. In cuBLAS 12.6.3 to 13.7 they are those of Hopper and newer GPUs; the release notes
// of CUDA 13.4 say so. They read blocks of 128 bytes, and what public reports saw lost is the
// incomplete block at the end (github.com/facebookexperimental/triton/pull/2767): so parts must be
// whole blocks, too.
constexpr std::int32_t kLosesElements = 66;
constexpr std::size_t kBlockBytes = 128;

// The algorithms of one way to describe a product.
class Search {
 public:
  Search(Stream& stream, const Product& product, FinishBy finish_by)
      : stream_(stream),
        product_(product),
        finish_by_(finish_by),
        current_(cuda_stream(stream).gpu()),
        description_(product, finish_by),
        num_blocks_(blocks_of(product)) {
    check_cublas(cublasLtMatmulPreferenceCreate(&preference_.object),
                 "cublasLtMatmulPreferenceCreate");
  }

  // Appends those that give right results and are not there yet.
  void add_to(std::vector<Plan>& plans, Parts parts) {
    constexpr int kMaxCandidates = 16;
    std::array<cublasLtMatmulHeuristicResult_t, kMaxCandidates> found{};
    int num_found = 0;
    set_preference(parts);
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle(), description_.matmul.object, description_.first.object, description_.second.object,
        description_.result.object, description_.result.object, preference_.object, kMaxCandidates,
        found.data(), &num_found);
    if (status != CUBLAS_STATUS_SUCCESS) {
      return note_refusal(stream_, "cublasLtMatmulAlgoGetHeuristic", status);
    }
    for (int i = 0; i < num_found; ++i) {
      cublasLtMatmulHeuristicResult_t& one = found[static_cast<std::size_t>(i)];
      if (one.state != CUBLAS_STATUS_SUCCESS || !make_right(one)) continue;
      if (one.workspaceSize > kProductWorkspaceBytes) continue;
      const bool is_new = std::ranges::none_of(plans, [&](const Plan& plan) {
        return plan.finish_by == finish_by_ &&
               std::memcmp(&plan.algorithm, &one.algo, sizeof(one.algo)) == 0;
      });
      if (is_new) plans.push_back({finish_by_, one.algo, one.workspaceSize});
    }
  }

 private:
  // The number of whole blocks of the inner dimension; nothing if an incomplete one follows.
  static std::optional<std::size_t> blocks_of(const Product& product) {
    const std::size_t num_bytes = inner_size(product) * size_of(product.a.dtype);
    if (num_bytes % kBlockBytes != 0) return std::nullopt;
    return num_bytes / kBlockBytes;
  }

  cublasLtHandle_t handle() const { return cublas_lt(cuda_stream(stream_).gpu()); }

  void set_preference(Parts parts) {
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
      check_cublas(
          cublasLtMatmulPreferenceSetAttribute(preference_.object, name, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
    };
    const std::uint32_t schemes =
        parts == Parts::one ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_MASK;
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes);
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kProductWorkspaceBytes);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(product_.b));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(product_.a));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(product_.c));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(product_.c));
  }

  // An attribute of an algorithm; nothing if the library does not tell.
  std::optional<std::int32_t> get(const cublasLtMatmulAlgo_t& algorithm,
                                  cublasLtMatmulAlgoConfigAttributes_t name) {
    std::int32_t value = 0;
    std::size_t num_written = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoConfigGetAttribute(&algorithm, name, &value, sizeof(value), &num_written);
    if (status == CUBLAS_STATUS_SUCCESS) return value;
    note_refusal(stream_, "cublasLtMatmulAlgoConfigGetAttribute", status);
    return std::nullopt;
  }

  // True if no element is lost when the inner dimension has so many parts.
  bool is_right(std::int32_t num_parts) const {
    if (num_parts <= 1) return true;
    return num_blocks_ && *num_blocks_ % static_cast<std::size_t>(num_parts) == 0;
  }

  // Gives an algorithm that would lose elements fewer parts. Returns false for one that does not
  // identify itself or cannot be changed.
  bool make_right(cublasLtMatmulHeuristicResult_t& one) {
    const auto id = get(one.algo, CUBLASLT_ALGO_CONFIG_ID);
    if (!id || *id != kLosesElements) return id.has_value();
    const auto num_parts = get(one.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
    if (!num_parts) return false;
    std::int32_t fewer = *num_parts;
    while (!is_right(fewer)) --fewer;
    return fewer == *num_parts || set_parts(one, fewer);
  }

  bool set_parts(cublasLtMatmulHeuristicResult_t& one, std::int32_t num_parts) {
    const auto set = [&](cublasLtMatmulAlgoConfigAttributes_t name, const auto& value) {
      return cublasLtMatmulAlgoConfigSetAttribute(&one.algo, name, &value, sizeof(value));
    };
    cublasStatus_t status = set(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, num_parts);
    if (status == CUBLAS_STATUS_SUCCESS && num_parts == 1) {
      const std::uint32_t none = CUBLASLT_REDUCTION_SCHEME_NONE;
      status = set(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, none);
    }
    if (status == CUBLAS_STATUS_SUCCESS) {
      status =
          cublasLtMatmulAlgoCheck(handle(), description_.matmul.object, description_.first.object,
                                  description_.second.object, description_.result.object,
                                  description_.result.object, &one.algo, &one);
    }
    if (status == CUBLAS_STATUS_SUCCESS) return one.state == CUBLAS_STATUS_SUCCESS;
    note_refusal(stream_, "cublasLtMatmulAlgoCheck", status);
    return false;
  }

  Stream& stream_;
  const Product& product_;
  FinishBy finish_by_;
  CurrentGpu current_;
  Description description_;
  Descriptor<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference_;
  std::optional<std::size_t> num_blocks_;
};

}  // namespace

void note_refusal(Stream& stream, const char* call, cublasStatus_t status) {
  cudaGetLastError();
  cuda_stream(stream).is_capturing();  // throws the error of a GPU that has failed
  log_debug("{} refuses: {} (cuBLAS status {})", call, cublasLtGetStatusString(status),
            static_cast<int>(status));
}

// Algorithms that only multiply can divide the inner dimension among more blocks: a kernel that
// finishes their result may cost less than that gains. Where all algorithms would divide it so that
// elements are lost, the library is asked for those that do not divide it.
std::vector<Plan> candidates(Stream& stream, const Product& product) {
  std::vector<Plan> plans;
  if (epilogue_of(product)) {
    Search(stream, product, FinishBy::library).add_to(plans, Parts::several);
  }
  Search multiply_only(stream, product, FinishBy::kernel);
  multiply_only.add_to(plans, Parts::several);
  if (plans.empty()) multiply_only.add_to(plans, Parts::one);
  return plans;
}

}  // namespace lockstep::kernels::cuda
