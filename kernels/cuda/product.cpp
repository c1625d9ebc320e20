#include "kernels/cuda/product.h"

#include <algorithm>

#include "engine/core/error.h"
#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear_finish.h"
#include "kernels/cuda/product_workspace.h"
#include "kernels/matmul_precision.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr std::int64_t kMaskBits = 128;      // a row of a ReLU mask begins at multiples of it
constexpr std::size_t kGeluAuxElements = 8;  // a row of saved GELU inputs, likewise
constexpr std::uint32_t kMaxAlignment = 16;  // of one access of a GPU thread

bool has_relu_mask(cublasLtEpilogue_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_RELU_AUX || epilogue == CUBLASLT_EPILOGUE_RELU_AUX_BIAS ||
         epilogue == CUBLASLT_EPILOGUE_DRELU;
}

std::int64_t mask_leading_dimension(std::size_t cols) {
  const auto bits = static_cast<std::int64_t>(cols);
  return (bits + kMaskBits - 1) / kMaskBits * kMaskBits;
}

// The types of a product: its elements, what it is computed in, and alpha and beta.
struct Types {
  cudaDataType_t element;
  cublasComputeType_t compute;
};

Types types_of(const Product& product) {
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

// The largest of 4, 8 and 16 that the number of bytes is a multiple of.
std::uint32_t alignment_of(std::uintptr_t num_bytes) {
  if (num_bytes % 16 == 0) return 16;
  return num_bytes % 8 == 0 ? 8 : 4;
}

std::uint32_t alignment_of(const void* data) {
  return alignment_of(reinterpret_cast<std::uintptr_t>(data));
}

// Of every row of every matrix.
std::uint32_t alignment_of(const ConstMatrixView& view) {
  const std::size_t size = size_of(view.dtype);
  std::uint32_t result =
      std::min(alignment_of(view.data), alignment_of(view.leading_dimension * size));
  if (view.batch > 1) result = std::min(result, alignment_of(view.batch_stride * size));
  return result;
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
    layout.set_batch(static_cast<std::int32_t>(batch),
                     view.batch == 1 ? 0 : static_cast<std::int64_t>(view.batch_stride));
  }
  return layout;
}

// The library's description of a product.
struct Description {
  Description(const Product& product, cublasLtEpilogue_t epilogue)
      : types(types_of(product)),
        matmul(types.compute, types.element),
        first(layout_of(product.b, types.element, product.c.batch)),
        second(layout_of(product.a, types.element, product.c.batch)),
        result(layout_of(product.c, types.element, product.c.batch)) {
    matmul.set(CUBLASLT_MATMUL_DESC_TRANSA, operation(product.transpose_b));
    matmul.set(CUBLASLT_MATMUL_DESC_TRANSB, operation(product.transpose_a));
    if (epilogue != CUBLASLT_EPILOGUE_DEFAULT) set_epilogue(product, epilogue);
  }

  Types types;
  MatmulDescriptor matmul;
  MatrixLayout first;   // of the memory of b
  MatrixLayout second;  // of the memory of a
  MatrixLayout result;  // of c

 private:
  // Heuristics read the pointers too: how they are aligned decides which algorithms there are.
  void set_epilogue(const Product& product, cublasLtEpilogue_t epilogue) {
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
      set_auxiliary(mask, mask_leading_dimension(product.c.cols));
    } else if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
               epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
      set_auxiliary(product.preactivation.data,
                    static_cast<std::int64_t>(product.preactivation.leading_dimension));
    } else if (epilogue == CUBLASLT_EPILOGUE_DGELU) {
      set_auxiliary(product.saved.data, static_cast<std::int64_t>(product.saved.leading_dimension));
    }
  }

  void set_auxiliary(const void* data, std::int64_t leading_dimension) {
    matmul.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, data);
    matmul.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, leading_dimension);
  }
};

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

// GELU's saved inputs lie as the library wants them.
bool fits_gelu_epilogue(const ConstMatrixView& saved) {
  return saved.leading_dimension % kGeluAuxElements == 0 && alignment_of(saved.data) == 16;
}

// The library's kernels take a bias, or its gradient, 16 bytes at a time. Unlike a matrix's, its
// alignment is nothing that the heuristics are told, and a misaligned access ends the GPU's
// context.
bool fits_bias_epilogue(const ConstTensorView& vector) {
  return alignment_of(vector.data) == 16;  // true where there is none
}

// What the library was not asked to do.
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

}  // namespace

std::size_t inner_size(const Product& product) {
  return product.transpose_a == Transpose::yes ? product.a.rows : product.a.cols;
}

std::size_t relu_mask_bytes(std::size_t rows, std::size_t cols) {
  return rows * static_cast<std::size_t>(mask_leading_dimension(cols)) / 8;
}

std::vector<cublasLtEpilogue_t> epilogues_for(const Product& product) {
  std::vector<cublasLtEpilogue_t> result;
  // cuBLASLt has no gradient epilogues for an inner size of 1.
  const bool has_gradients = inner_size(product) > 1;
  const bool has_bias = product.bias.data != nullptr;
  const bool keeps = product.preactivation.data != nullptr;
  if (product.c.dtype == DType::float32) {
    switch (product.finish) {
      case Product::Finish::none:
        break;
      case Product::Finish::forward:
        if (!fits_bias_epilogue(product.bias)) break;
        if (product.activation == Activation::none && has_bias && !keeps) {
          result.push_back(CUBLASLT_EPILOGUE_BIAS);
        } else if (product.activation == Activation::relu && !keeps) {
          if (product.mask_use != Product::Mask::none) {
            result.push_back(has_bias ? CUBLASLT_EPILOGUE_RELU_AUX_BIAS
                                      : CUBLASLT_EPILOGUE_RELU_AUX);
          }
          if (product.mask_use != Product::Mask::written) {
            result.push_back(has_bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU);
          }
        } else if (product.activation == Activation::gelu_tanh) {
          if (!keeps) {
            result.push_back(has_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU);
          } else if (fits_gelu_epilogue(product.preactivation)) {
            result.push_back(has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
                                      : CUBLASLT_EPILOGUE_GELU_AUX);
          }
        }
        break;
      case Product::Finish::gradient:
        if (!has_gradients) break;
        if (product.activation == Activation::relu && product.saved_mask.data != nullptr) {
          result.push_back(CUBLASLT_EPILOGUE_DRELU);
        } else if (product.activation == Activation::gelu_tanh &&
                   fits_gelu_epilogue(product.saved)) {
          result.push_back(CUBLASLT_EPILOGUE_DGELU);
        }
        break;
      case Product::Finish::bias_gradient:
        // It overwrites; a gradient that is added to is summed by a kernel of ours.
        if (product.write == Write::overwrite && has_gradients &&
            fits_bias_epilogue(product.column_sums)) {
          result.push_back(CUBLASLT_EPILOGUE_BGRADB);
        }
        break;
    }
  }
  if (product.mask_use != Product::Mask::written) result.push_back(CUBLASLT_EPILOGUE_DEFAULT);
  return result;
}

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
  const Description description(product, epilogue);
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
  const Description description(product, plan.epilogue);
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(
      cublas_lt(gpu), description.matmul.get(), description.first.get(), description.second.get(),
      description.result.get(), description.result.get(), &plan.algorithm, &result);
  return status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= plan.workspace_bytes &&
         plan.workspace_bytes <= kProductWorkspaceBytes &&
         !is_known_to_be_wrong(plan.algorithm, inner_size(product));
}

Launched try_launch(Stream& stream, const Product& product, const ProductPlan& plan) {
  void* const workspace = plan.workspace_bytes > 0 ? product_workspace(stream) : nullptr;
  {
    LaunchScope scope(stream, product.operation);
    const Description description(product, plan.epilogue);
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
