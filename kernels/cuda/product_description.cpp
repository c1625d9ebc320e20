#include "kernels/cuda/product_description.h"

#include <algorithm>
#include <cstdint>

#include "engine/core/shape.h"
#include "kernels/cuda/epilogues.h"
#include "kernels/matmul_precision.h"

namespace lockstep::kernels::cuda {
namespace {

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

// What is still to be allocated will be aligned like any block of memory.
const void* or_aligned(const void* data) {
  return data != nullptr ? data : reinterpret_cast<const void*>(std::uintptr_t{4096});
}

// Heuristics read the pointers too: how they are aligned decides which algorithms there are.
void set_epilogue(MatmulDescriptor& matmul, const Product& product, cublasLtEpilogue_t epilogue) {
  matmul.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  if (epilogue == CUBLASLT_EPILOGUE_BGRADB || has_gradient_sums(epilogue)) {
    matmul.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, or_aligned(product.column_sums.data));
  } else if (product.bias.data != nullptr) {
    matmul.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias.data);
  }
  if (writes_relu_mask(epilogue) || reads_relu_mask(epilogue)) {
    const bool is_written = writes_relu_mask(epilogue);
    const void* mask = is_written ? product.mask.data : product.saved_mask.data;
    set_auxiliary(matmul, or_aligned(mask), mask_leading_dimension(product.c.cols));
  } else if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
             epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
    set_auxiliary(matmul, product.preactivation.data,
                  static_cast<std::int64_t>(product.preactivation.leading_dimension));
  } else if (epilogue == CUBLASLT_EPILOGUE_DGELU || epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD) {
    set_auxiliary(matmul, product.saved.data,
                  static_cast<std::int64_t>(product.saved.leading_dimension));
  }
}

}  // namespace

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

ProductDescription::ProductDescription(const Product& product, cublasLtEpilogue_t epilogue)
    : types(types_of(product)),
      matmul(types.compute, types.element),
      first(layout_of(product.b, types.element, product.c.batch)),
      second(layout_of(product.a, types.element, product.c.batch)),
      result(layout_of(product.c, types.element, product.c.batch)) {
  matmul.set(CUBLASLT_MATMUL_DESC_TRANSA, operation(product.transpose_b));
  matmul.set(CUBLASLT_MATMUL_DESC_TRANSB, operation(product.transpose_a));
  if (epilogue != CUBLASLT_EPILOGUE_DEFAULT) set_epilogue(matmul, product, epilogue);
}

}  // namespace lockstep::kernels::cuda
