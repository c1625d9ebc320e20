// A product in cuBLASLt's terms, and the key by which two products are the same.
// Reference: docs.nvidia.com/cuda/cublas, "Using the cuBLASLt API".
#pragma once

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>

#include "engine/core/error.h"
#include "engine/core/shape.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/physical_gpus.h"
#include "kernels/cuda/product.h"
#include "kernels/matmul_precision.h"

namespace lockstep::kernels::cuda {

inline void check_cublas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(ErrorCode::Cuda, call, "failed: {} (cuBLAS status {})", cublasLtGetStatusString(status),
       static_cast<int>(status));
}

// The library's state on one physical GPU, shared by its logical devices and all threads, which the
// library allows. Never destroyed: tensors in static variables may be used until the very end.
inline cublasLtHandle_t cublas_lt(int gpu) {
  static std::mutex& mutex = *new std::mutex;
  static auto& handles = *new std::map<int, cublasLtHandle_t>;
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = handles[gpu];
  if (handle == nullptr) {
    const runtime::cuda::CurrentGpu current(gpu);
    check_cublas(cublasLtCreate(&handle), "cublasLtCreate");
  }
  return handle;
}

// Owns one of the library's descriptors.
template <typename Object, cublasStatus_t (*kDestroy)(Object)>
struct Descriptor {
  Object object = nullptr;
  Descriptor() = default;
  ~Descriptor() {
    if (object != nullptr) kDestroy(object);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

inline cublasComputeType_t compute_type(const Product& product) {
  if (product.c.dtype == DType::float64) return CUBLAS_COMPUTE_64F;
  if (product.a.dtype == DType::bfloat16) return CUBLAS_COMPUTE_32F;
  switch (matmul_precision()) {
    case MatmulPrecision::highest:
    case MatmulPrecision::bf16:
      return CUBLAS_COMPUTE_32F;
    case MatmulPrecision::high:
      return CUBLAS_COMPUTE_32F_FAST_TF32;
    case MatmulPrecision::medium:
      return CUBLAS_COMPUTE_32F_FAST_16BF;
  }
  return CUBLAS_COMPUTE_32F;
}

inline cudaDataType_t type_of(const ConstMatrixView& view) {
  if (view.dtype == DType::bfloat16) return CUDA_R_16BF;
  return view.dtype == DType::float64 ? CUDA_R_64F : CUDA_R_32F;
}

// The largest of 2, 4, 8 and 16 that divides the addresses of all rows.
inline std::uint32_t alignment_of(const ConstMatrixView& view) {
  const std::size_t size = size_of(view.dtype);
  const std::size_t all = reinterpret_cast<std::uintptr_t>(view.data) |
                          view.leading_dimension * size |
                          (view.batch > 1 ? view.batch_stride * size : 0);
  return all % 16 == 0 ? 16 : all % 8 == 0 ? 8 : all % 4 == 0 ? 4 : 2;
}

// The library adds the bias and applies the activation itself, or one of our kernels does so
// afterwards.
enum class FinishBy { library, kernel };

// True if there is anything to do after the product.
inline bool has_finish(const Product& product) {
  return product.bias.data != nullptr || product.activation != Activation::none ||
         product.preactivation.data != nullptr;
}

// The library's word for all of it, if it has one. It adds no bias to float64. Its ReLU leaves a
// NaN a NaN, as ours does (seen on an H200 in cuBLAS 13.1; a test asks again). Its GELU is the one
// by tanh, which may be approximate where bfloat16 hides it; it keeps a preactivation in aligned
// rows.
inline std::optional<cublasLtEpilogue_t> epilogue_of(const Product& product) {
  if (product.bias.data == nullptr || product.c.dtype == DType::float64) return std::nullopt;
  const bool keeps = product.preactivation.data != nullptr;
  if (product.activation == Activation::gelu_tanh && product.c.dtype == DType::bfloat16) {
    if (!keeps) return CUBLASLT_EPILOGUE_GELU_BIAS;
    if (alignment_of(product.preactivation) == 16) return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  }
  if (!keeps && product.activation == Activation::none) return CUBLASLT_EPILOGUE_BIAS;
  if (!keeps && product.activation == Activation::relu) return CUBLASLT_EPILOGUE_RELU_BIAS;
  return std::nullopt;
}

// Everything except the addresses.
struct Description {
  using Layout = Descriptor<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
  Descriptor<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> matmul;
  Layout first;   // b's memory
  Layout second;  // a's memory
  Layout result;  // c's

  Description(const Product& product, FinishBy finish_by) {
    check_cublas(
        cublasLtMatmulDescCreate(&matmul.object, compute_type(product),
                                 product.c.dtype == DType::float64 ? CUDA_R_64F : CUDA_R_32F),
        "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, operation(product.transpose_b));
    set(CUBLASLT_MATMUL_DESC_TRANSB, operation(product.transpose_a));
    if (finish_by == FinishBy::library) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(product).value());
      set_finish(product.bias.data, product.preactivation);
    }
    describe(first, product.b, product.c.batch);
    describe(second, product.a, product.c.batch);
    describe(result, product.c, product.c.batch);
  }

  // bias: of c's dtype.
  void set_finish(const void* bias, const MatrixView& preactivation) {
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    if (preactivation.data == nullptr) return;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, preactivation.data);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
        static_cast<std::int64_t>(preactivation.leading_dimension));
  }

 private:
  static cublasOperation_t operation(Transpose transpose) {
    return transpose == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N;
  }
  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t name, const Value& value) {
    check_cublas(cublasLtMatmulDescSetAttribute(matmul.object, name, &value, sizeof(value)),
                 "cublasLtMatmulDescSetAttribute");
  }
  // Describes row-major [rows, cols] as column-major [cols, rows].
  static void describe(Layout& layout, const ConstMatrixView& view, std::size_t batch) {
    const auto leading_dimension =
        static_cast<std::int64_t>(std::max(view.leading_dimension, view.cols));
    check_cublas(cublasLtMatrixLayoutCreate(&layout.object, type_of(view), view.cols, view.rows,
                                            leading_dimension),
                 "cublasLtMatrixLayoutCreate");
    if (batch == 1) return;
    const auto set = [&](cublasLtMatrixLayoutAttribute_t name, const auto& value) {
      check_cublas(cublasLtMatrixLayoutSetAttribute(layout.object, name, &value, sizeof(value)),
                   "cublasLtMatrixLayoutSetAttribute");
    };
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
        checked_narrow<std::int32_t>("matmul", "the number of matrices", batch));
    // A matrix that serves the whole batch is read again for each item.
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
        view.batch == 1 ? std::int64_t{0} : static_cast<std::int64_t>(view.batch_stride));
  }
};

// --- the products that are the same

inline std::size_t inner_size(const Product& product) {
  return product.transpose_a == Transpose::yes ? product.a.rows : product.a.cols;
}

// Everything that decides which algorithms a product has and how fast they are, and nothing else.
// Only the alignment of pointers counts, so that a shard of a batch that begins at another row is
// the same product.
using ProductKey = std::array<std::int64_t, 22>;

struct KeyHash {
  std::size_t operator()(const ProductKey& key) const {
    std::uint64_t hash = 0;
    for (const std::int64_t number : key) {
      hash = (hash ^ static_cast<std::uint64_t>(number)) * 0x9E3779B97F4A7C15;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

// The first GPU of the same model.
inline int model_of(int gpu) {
  const auto& gpus = runtime::physical_gpus();
  int first = 0;
  while (first < gpu &&
         gpus[static_cast<std::size_t>(first)].name != gpus[static_cast<std::size_t>(gpu)].name) {
    ++first;
  }
  return first;
}

inline ProductKey key_of(Stream& stream, const Product& product) {
  const auto number = [](auto value) { return static_cast<std::int64_t>(value); };
  const auto stride = [&](const ConstMatrixView& view) {
    return number(view.batch == 1 ? 0 : view.batch_stride);
  };
  const auto is_bias_aligned = reinterpret_cast<std::uintptr_t>(product.bias.data) % 16 == 0;
  return {runtime::cuda::cuda_stream(stream).gpu(),
          number(is_matmul_tuning_on()),
          number(compute_type(product)),
          number(type_of(product.a)) | number(type_of(product.c)) << 8,
          number(product.transpose_a),
          number(product.transpose_b),
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
          number(product.bias.data != nullptr) + number(is_bias_aligned),
          alignment_of(product.a) | alignment_of(product.b) << 8,
          alignment_of(product.c),
          number(product.activation),
          number(product.preactivation.data != nullptr) |
              number(epilogue_of(product).value_or(CUBLASLT_EPILOGUE_DEFAULT)) << 1};
}

}  // namespace lockstep::kernels::cuda
