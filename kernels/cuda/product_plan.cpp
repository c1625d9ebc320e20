#include "kernels/cuda/product_plan.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include "engine/core/error.h"
#include "engine/core/log.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/logical_device.h"
#include "kernels/cuda/alignment.h"
#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/epilogues.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear_finish.h"
#include "kernels/cuda/product_description.h"

namespace lockstep::kernels::cuda {
namespace {

// --- memory in which products keep partial sums

// What cuBLASLt's documentation recommends for Hopper; older GPUs ask for less.
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

// Algorithms that cut the inner dimension among blocks of the GPU need it. Each stream has its own,
// since products on two streams of a device may run at the same time; those of one stream follow
// each other and share it. It is taken from the device's pool when a stream's first such algorithm
// runs, and kept. Throws Error{Device} without memory.
void* workspace_for(Stream& stream) {
  // A thread mostly works on one stream.
  thread_local const Stream* last_stream = nullptr;
  thread_local void* last = nullptr;
  if (last_stream == &stream) return last;

  static std::mutex& mutex = *new std::mutex;
  static auto& workspaces = *new std::map<const Stream*, void*>;
  const std::lock_guard lock(mutex);
  void*& workspace = workspaces[&stream];
  if (workspace == nullptr) {
    workspace = stream.device().memory().allocate(kWorkspaceBytes).data;
    // The pool may have handed out memory that enqueued work of the compute stream still uses.
    Stream& compute = stream.device().compute_stream();
    if (&stream != &compute) stream.wait(compute.record());
  }
  last_stream = &stream;
  last = workspace;
  return last;
}

// --- what the library leaves to do, and what it does wrongly

void finish_rest(Stream& stream, const Product& product, cublasLtEpilogue_t epilogue) {
  if (does_all(epilogue, product)) return;
  switch (product.finish) {
    case Product::Finish::none:
      return;
    case Product::Finish::forward:
      if (product.activation != Activation::none || product.bias.data != nullptr ||
          product.preactivation.data != nullptr) {
        finish_forward(stream, product.c, product.bias, product.activation, product.preactivation);
      }
      return;
    case Product::Finish::gradient:
    case Product::Finish::gradient_sums:
      if (!has_derivative(epilogue)) {
        finish_backward(stream, product.activation, product.saved, product.c, product.c);
      }
      if (product.finish == Product::Finish::gradient_sums) {
        backend(DeviceType::cuda).sum_rows(stream, product.c, product.column_sums, product.write);
      }
      return;
    case Product::Finish::bias_gradient:
      backend(DeviceType::cuda).sum_rows(stream, product.a, product.column_sums, product.write);
      return;
  }
}

// After a refusal: throws Error{Cuda} if the GPU has failed, for then no other way works either.
void require_working_gpu(Stream& stream) {
  cudaGetLastError();  // an error that does not stay is answered
  runtime::cuda::cuda_stream(stream).is_capturing();
}

// Says in the log why the library does not compute something in one way.
void note_refusal(Stream& stream, const char* call, cublasStatus_t status) {
  require_working_gpu(stream);
  log_debug("{} refuses: {} (cuBLAS status {})", call, cublasLtGetStatusString(status),
            static_cast<int>(status));
}

// Nothing where the library knows no such epilogue.
std::optional<ProductDescription> describe(Stream& stream, const Product& product,
                                           cublasLtEpilogue_t epilogue) {
  try {
    return std::optional<ProductDescription>(std::in_place, product, epilogue);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::Cuda) throw;
    require_working_gpu(stream);
    log_debug("{}", error.what());
    return std::nullopt;
  }
}

// Algorithms that give wrong results, or that do not say what they are. cuBLAS 12.6.3 to 13.7:
// those with the number 66, on Hopper and newer GPUs, that split the inner dimension into parts
// which do not divide it; the release notes of CUDA 13.4 say so. They are left out of every
// version: they are few, and others are as fast.
bool is_trusted(Stream& stream, const cublasLtMatmulAlgo_t& algorithm, std::size_t depth) {
  constexpr std::int32_t kAffected = 66;
  const auto get = [&](cublasLtMatmulAlgoConfigAttributes_t name, std::int32_t& value) {
    std::size_t num_written = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoConfigGetAttribute(&algorithm, name, &value, sizeof(value), &num_written);
    if (status == CUBLAS_STATUS_SUCCESS) return true;
    note_refusal(stream, "cublasLtMatmulAlgoConfigGetAttribute", status);
    return false;
  };
  std::int32_t id = 0;
  std::int32_t num_splits = 0;
  if (!get(CUBLASLT_ALGO_CONFIG_ID, id)) return false;
  if (id != kAffected) return true;
  return get(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, num_splits) &&
         (num_splits <= 1 || depth % static_cast<std::size_t>(num_splits) == 0);
}

}  // namespace

ProductKey key_of(const Product& product) {
  const auto number = [](auto value) { return static_cast<std::int64_t>(value); };
  const auto stride = [&](const ConstMatrixView& view) {
    return number(view.batch == 1 ? 0 : view.batch_stride);
  };
  const bool has_sums = has_column_sums(product);
  const void* vector = has_sums ? product.column_sums.data : product.bias.data;
  const ConstMatrixView auxiliary =
      has_gradient(product) ? product.saved : ConstMatrixView(product.preactivation);
  const std::int64_t alignments = alignment_of(product.a) | alignment_of(product.b) << 8 |
                                  alignment_of(product.c) << 16 | alignment_of(vector) << 24;
  return {number(types_of(product).compute),
          number(product.transpose_a == Transpose::yes),
          number(product.transpose_b == Transpose::yes),
          number(product.c.rows),
          number(product.c.cols),
          number(inner_size(product)),
          number(product.c.batch),
          number(product.a.leading_dimension),
          number(product.b.leading_dimension),
          number(product.c.leading_dimension),
          stride(product.a),
          stride(product.b),
          stride(product.c),
          number(product.write),
          number(product.finish),
          number(product.activation),
          number(has_sums || vector != nullptr),
          number(product.mask_use) | number(product.saved_mask.data != nullptr) << 8,
          number(auxiliary.data != nullptr ? auxiliary.leading_dimension : 0),
          number(alignment_of(auxiliary)),
          alignments};
}

std::vector<ProductPlan> candidates(Stream& stream, const Product& product,
                                    cublasLtEpilogue_t epilogue, int max_candidates) {
  const int gpu = runtime::cuda::cuda_stream(stream).gpu();
  const runtime::cuda::CurrentGpu current(gpu);
  const auto description = describe(stream, product, epilogue);
  if (!description) return {};
  MatmulPreference preference;
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(product.b));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(product.a));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(product.c));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(product.c));
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(max_candidates));
  int num_found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      cublas_lt(gpu), description->matmul.get(), description->first.get(),
      description->second.get(), description->result.get(), description->result.get(),
      preference.get(), max_candidates, found.data(), &num_found);
  if (status != CUBLAS_STATUS_SUCCESS) {
    note_refusal(stream, "cublasLtMatmulAlgoGetHeuristic", status);
    return {};
  }
  std::vector<ProductPlan> result;
  for (int i = 0; i < num_found; ++i) {
    const cublasLtMatmulHeuristicResult_t& one = found[static_cast<std::size_t>(i)];
    if (one.state == CUBLAS_STATUS_SUCCESS && one.workspaceSize <= kWorkspaceBytes &&
        is_trusted(stream, one.algo, inner_size(product))) {
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
  const auto description = describe(stream, product, plan.epilogue);
  if (!description) return false;
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(cublas_lt(gpu), description->matmul.get(), description->first.get(),
                              description->second.get(), description->result.get(),
                              description->result.get(), &plan.algorithm, &result);
  return status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= plan.workspace_bytes &&
         plan.workspace_bytes <= kWorkspaceBytes &&
         is_trusted(stream, plan.algorithm, inner_size(product));
}

Launched try_launch(Stream& stream, const Product& product, const ProductPlan& plan) {
  void* const workspace = plan.workspace_bytes > 0 ? workspace_for(stream) : nullptr;
  {
    LaunchScope scope(stream, product.operation);
    const ProductDescription description(product, plan.epilogue);
    const float one = 1, zero = 0;
    const double wide_one = 1, wide_zero = 0;
    const bool is_wide = product.c.dtype == DType::float64;
    const bool adds = product.write == Write::accumulate;
    const void* alpha = is_wide ? static_cast<const void*>(&wide_one) : &one;
    const void* beta = adds ? alpha : is_wide ? static_cast<const void*>(&wide_zero) : &zero;
    const cublasStatus_t status = cublasLtMatmul(
        cublas_lt(runtime::cuda::cuda_stream(stream).gpu()), description.matmul.get(), alpha,
        product.b.data, description.first.get(), product.a.data, description.second.get(), beta,
        product.c.data, description.result.get(), product.c.data, description.result.get(),
        &plan.algorithm, workspace, plan.workspace_bytes, scope.handle());
    if (status != CUBLAS_STATUS_SUCCESS) {
      note_refusal(stream, "cublasLtMatmul", status);
      return Launched::refused;
    }
    scope.finish(cudaSuccess);
  }
  finish_rest(stream, product, plan.epilogue);
  return Launched::yes;
}

}  // namespace lockstep::kernels::cuda
