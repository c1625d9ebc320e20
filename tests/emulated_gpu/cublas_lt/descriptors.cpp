// Handles, descriptors and their attributes, and the texts of statuses.
#include <cstring>

#include "tests/emulated_gpu/cublas_lt/problem.h"
#include "tests/emulated_gpu/runtime.h"

using namespace emulated_gpu;
using namespace emulated_gpu::cublas_lt;

namespace {

// Takes an attribute's value.
template <typename Field>
cublasStatus_t store(Field& field, const void* buffer, std::size_t num_bytes) {
  if (buffer == nullptr || num_bytes != sizeof(field)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, buffer, num_bytes);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Object, typename Handle>
cublasStatus_t create(Handle* handle, Object object) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *handle = reinterpret_cast<Handle>(new Object(object));
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Object, typename Handle>
cublasStatus_t destroy(Handle handle) {
  delete reinterpret_cast<Object*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

// A handle belongs to the GPU that is current when it is made.
cublasStatus_t CUBLASWINAPI cublasLtCreate(cublasLtHandle_t* lightHandle) {
  if (lightHandle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *lightHandle = new cublasLtContext{current_gpu()};
  return CUBLAS_STATUS_SUCCESS;
}

std::size_t CUBLASWINAPI cublasLtGetVersion() {
  return CUBLAS_VERSION;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* matmulDesc,
                                                     cublasComputeType_t computeType,
                                                     cudaDataType_t scaleType) {
  Operation operation;
  operation.compute_type = computeType;
  operation.scale_type = scaleType;
  return create(matmulDesc, operation);
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmulDesc) {
  return destroy<Operation>(matmulDesc);
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t matmulDesc,
                                                           cublasLtMatmulDescAttributes_t attr,
                                                           const void* buf,
                                                           std::size_t sizeInBytes) {
  if (matmulDesc == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  auto& operation = *reinterpret_cast<Operation*>(matmulDesc);
  switch (attr) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return store(operation.transpose_a, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return store(operation.transpose_b, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return store(operation.epilogue, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return store(operation.bias, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return store(operation.aux, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return store(operation.aux_ld, buf, sizeInBytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* matLayout,
                                                       cudaDataType type, std::uint64_t rows,
                                                       std::uint64_t cols, std::int64_t ld) {
  Layout layout;
  layout.type = static_cast<std::uint32_t>(type);
  layout.rows = rows;
  layout.cols = cols;
  layout.ld = ld;
  return create(matLayout, layout);
}

cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matLayout) {
  return destroy<Layout>(matLayout);
}

cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matLayout,
                                                             cublasLtMatrixLayoutAttribute_t attr,
                                                             const void* buf,
                                                             std::size_t sizeInBytes) {
  if (matLayout == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  auto& layout = *reinterpret_cast<Layout*>(matLayout);
  switch (attr) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return store(layout.batch_count, buf, sizeInBytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return store(layout.batch_stride, buf, sizeInBytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* pref) {
  return create(pref, Preference{});
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref) {
  return destroy<Preference>(pref);
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t pref, cublasLtMatmulPreferenceAttributes_t attr, const void* buf,
    std::size_t sizeInBytes) {
  if (pref == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  auto& preference = *reinterpret_cast<Preference*>(pref);
  switch (attr) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return store(preference.max_workspace_bytes, buf, sizeInBytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return store(preference.reduction_schemes, buf, sizeInBytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return store(preference.alignment_a, buf, sizeInBytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return store(preference.alignment_b, buf, sizeInBytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return store(preference.alignment_c, buf, sizeInBytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return store(preference.alignment_d, buf, sizeInBytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

const char* CUBLASWINAPI cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "a status of the emulated cuBLASLt";
}
