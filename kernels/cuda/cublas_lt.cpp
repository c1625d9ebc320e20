#include "kernels/cuda/cublas_lt.h"

#include <mutex>
#include <string_view>
#include <vector>

#include "engine/core/error.h"
#include "engine/runtime/cuda/cuda_stream.h"

namespace lockstep::kernels::cuda {

void fail_cublas(const char* call, cublasStatus_t status) {
  const std::string_view text(call);
  fail(ErrorCode::Cuda, text.substr(0, text.find('(')), "failed: {} (cuBLAS status {})",
       cublasLtGetStatusString(status), static_cast<int>(status));
}

cublasLtHandle_t cublas_lt(int gpu) {
  static std::mutex& mutex = *new std::mutex;
  static auto& handles = *new std::vector<cublasLtHandle_t>;
  const std::lock_guard lock(mutex);
  const auto index = static_cast<std::size_t>(gpu);
  if (handles.size() <= index) handles.resize(index + 1, nullptr);
  if (handles[index] == nullptr) {
    const runtime::cuda::CurrentGpu current(gpu);
    CUBLAS_CHECK(cublasLtCreate(&handles[index]));
  }
  return handles[index];
}

MatmulDescriptor::MatmulDescriptor(cublasComputeType_t compute_type, cudaDataType_t scale_type) {
  CUBLAS_CHECK(cublasLtMatmulDescCreate(&object_, compute_type, scale_type));
}

MatrixLayout::MatrixLayout(cudaDataType_t type, std::uint64_t rows, std::uint64_t cols,
                           std::int64_t leading_dimension) {
  CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&object_, type, rows, cols, leading_dimension));
}

void MatrixLayout::set_batch(std::int32_t batch, std::int64_t stride) {
  CUBLAS_CHECK(cublasLtMatrixLayoutSetAttribute(object_, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                                sizeof(batch)));
  CUBLAS_CHECK(cublasLtMatrixLayoutSetAttribute(
      object_, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)));
}

MatmulPreference::MatmulPreference() {
  CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&object_));
}

}  // namespace lockstep::kernels::cuda
