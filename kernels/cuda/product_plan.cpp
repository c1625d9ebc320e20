#include "kernels/cuda/product_plan.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "engine/core/checked.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/logical_device.h"
#include "kernels/cuda/alignment.h"
#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/epilogues.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear_finish.h"
#include "kernels/matmul_precision.h"

namespace lockstep::kernels::cuda {
namespace {

// --- a product in the library's words

// The types of a product: its elements, which are alpha's and beta's type too, and what it is
// computed in (matmul_precision.h).
struct ProductTypes {
  cudaDataType_t element;
  cublasComputeType_t compute;
};

ProductTypes types_of(const Product& product) {
  if (product.c.dtype == DType::float64) return {CUDA_R_64F, CUBLAS_COMPUTE_64F};
  switch (matmul_precision()) {
    case MatmulPrecision::highest:
      return {CUDA_R_32F, CUBLAS_COMPUTE_32F};
    case MatmulPrecision::high:
      return {CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32};
    case MatmulPrecision::medium:
      return {CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_16BF};
  }
  return {CUDA_R_32F, CUBLAS_COMPUTE_32F};
}

cublasOperation_t operation(Transpose transpose) {
  return transpose == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N;
}

// Row-major [rows, cols] as the library's column-major [cols, rows].
MatrixLayout layout_of(const ConstMatrixView& view, cudaDataType_t type, std::size_t batch) {
  MatrixLayout layout(type, view.cols, view.rows,
                      static_cast<std::int64_t>(std::max(view.leading_dimension, view.cols)));
  if (batch > 1) {
    // A matrix that stands for the whole batch is the same one again and again.
    layout.set_batch(checked_narrow<std::int32_t>("matmul", "the number of matrices", batch),
                     view.batch == 1 ? 0 : static_cast<std::int64_t>(view.batch_stride));
  }
  return layout;
}

void set_auxiliary(MatmulDescriptor& matmul, const void* data, std::int64_t leading_dimension) {
  matmul.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, data);
  matmul.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, leading_dimension);
}

// Heuristics read the pointers too: how they are aligned decides which algorithms there are.
void set_epilogue(MatmulDescriptor& matmul, const Product& product, cublasLtEpilogue_t epilogue) {
  matmul.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  if (epilogue == CUBLASLT_EPILOGUE_BGRADB) {
    matmul.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.column_sums.data);
  } else if (product.bias.data != nullptr) {
    matmul.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias.data);
  }
  if (has_relu_mask(epilogue)) {
    const bool is_written = epilogue != CUBLASLT_EPILOGUE_DRELU;
    const void* mask = is_written ? product.mask.data : product.saved_mask.data;
    // A mask that is still to be allocated will be aligned like any block of memory.
    if (mask == nullptr) mask = reinterpret_cast<const void*>(std::uintptr_t{4096});
    set_auxiliary(matmul, mask, mask_leading_dimension(product.c.cols));
  } else if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
             epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
    set_auxiliary(matmul, product.preactivation.data,
                  static_cast<std::int64_t>(product.preactivation.leading_dimension));
  } else if (epilogue == CUBLASLT_EPILOGUE_DGELU) {
    set_auxiliary(matmul, product.saved.data,
                  static_cast<std::int64_t>(product.saved.leading_dimension));
  }
}

struct ProductDescription {
  ProductDescription(const Product& product, cublasLtEpilogue_t epilogue)
      : types(types_of(product)),
        matmul(types.compute, types.element),
        first(layout_of(product.b, types.element, product.c.batch)),
        second(layout_of(product.a, types.element, product.c.batch)),
        result(layout_of(product.c, types.element, product.c.batch)) {
    matmul.set(CUBLASLT_MATMUL_DESC_TRANSA, operation(product.transpose_b));
    matmul.set(CUBLASLT_MATMUL_DESC_TRANSB, operation(product.transpose_a));
    if (epilogue != CUBLASLT_EPILOGUE_DEFAULT) set_epilogue(matmul, product, epilogue);
  }

  ProductTypes types;
  MatmulDescriptor matmul;
  MatrixLayout first;   // of the memory of b
  MatrixLayout second;  // of the memory of a
  MatrixLayout result;  // of c
};

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
  if (epilogue != CUBLASLT_EPILOGUE_DEFAULT) return;
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
      finish_backward(stream, product.activation, product.saved, product.c, product.c);
      return;
    case Product::Finish::bias_gradient:
      backend(DeviceType::cuda).sum_rows(stream, product.a, product.column_sums, product.write);
      return;
  }
}

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

ProductKey key_of(const Product& product) {
  const auto number = [](auto value) { return static_cast<std::int64_t>(value); };
  const auto stride = [&](const ConstMatrixView& view) {
    return number(view.batch == 1 ? 0 : view.batch_stride);
  };
  const void* vector = product.finish == Product::Finish::bias_gradient ? product.column_sums.data
                                                                        : product.bias.data;
  const ConstMatrixView auxiliary = product.finish == Product::Finish::gradient
                                        ? product.saved
                                        : ConstMatrixView(product.preactivation);
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
          number(vector != nullptr),
          number(product.mask_use) | number(product.saved_mask.data != nullptr) << 8,
          number(auxiliary.data != nullptr ? auxiliary.leading_dimension : 0),
          number(alignment_of(auxiliary)),
          alignments};
}

std::vector<ProductPlan> candidates(Stream& stream, const Product& product,
                                    cublasLtEpilogue_t epilogue, int max_candidates) {
  const int gpu = runtime::cuda::cuda_stream(stream).gpu();
  const runtime::cuda::CurrentGpu current(gpu);
  const ProductDescription description(product, epilogue);
  MatmulPreference preference;
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
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
    if (one.state == CUBLAS_STATUS_SUCCESS && one.workspaceSize <= kWorkspaceBytes &&
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
         plan.workspace_bytes <= kWorkspaceBytes &&
         !is_known_to_be_wrong(plan.algorithm, inner_size(product));
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
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) {
      return Launched::refused;
    }
    check_cublas(status, "cublasLtMatmul");
    scope.finish(cudaSuccess);
  }
  finish_rest(stream, product, plan.epilogue);
  return Launched::yes;
}

}  // namespace lockstep::kernels::cuda
