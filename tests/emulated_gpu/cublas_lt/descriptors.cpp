// Handles, descriptors and their attributes.
#include <cstring>

#include "tests/emulated_gpu/cublas_lt/context.h"
#include "tests/emulated_gpu/cublas_lt/problem.h"
#include "tests/emulated_gpu/runtime.h"

using namespace emulated_gpu;
using namespace emulated_gpu::cublas_lt;

namespace {

struct Bytes {
  void* data = nullptr;  // nullptr: there is no such attribute here
  std::size_t size = 0;
};

template <typename T>
Bytes bytes_of(T& field) {
  return {&field, sizeof(field)};
}

Bytes attribute(Operation& operation, cublasLtMatmulDescAttributes_t name) {
  switch (name) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return bytes_of(operation.compute_type);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return bytes_of(operation.scale_type);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return bytes_of(operation.pointer_mode);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return bytes_of(operation.transpose_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return bytes_of(operation.transpose_b);
    case CUBLASLT_MATMUL_DESC_TRANSC:
      return bytes_of(operation.transpose_c);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return bytes_of(operation.epilogue);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
      return bytes_of(operation.sm_count_target);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return bytes_of(operation.bias);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
      return bytes_of(operation.bias_batch_stride);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return bytes_of(operation.bias_type);
    default:
      return {};
  }
}

Bytes attribute(Layout& layout, cublasLtMatrixLayoutAttribute_t name) {
  switch (name) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return bytes_of(layout.type);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return bytes_of(layout.order);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return bytes_of(layout.rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return bytes_of(layout.cols);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return bytes_of(layout.ld);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return bytes_of(layout.batch_count);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return bytes_of(layout.batch_stride);
    default:
      return {};
  }
}

Bytes attribute(Preference& preference, cublasLtMatmulPreferenceAttributes_t name) {
  switch (name) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
      return bytes_of(preference.search_mode);
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return bytes_of(preference.max_workspace_bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return bytes_of(preference.reduction_scheme_mask);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return bytes_of(preference.alignment_a);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return bytes_of(preference.alignment_b);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return bytes_of(preference.alignment_c);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return bytes_of(preference.alignment_d);
    case CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT:
      return bytes_of(preference.max_waves_count);
    case CUBLASLT_MATMUL_PREF_IMPL_MASK:
      return bytes_of(preference.impl_mask);
    default:
      return {};
  }
}

// Object: what is behind a Handle.
template <typename Object, typename Handle, typename Name>
cublasStatus_t set(Handle handle, Name name, const void* buffer, std::size_t num_bytes) {
  if (handle == nullptr || buffer == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const Bytes field = attribute(*reinterpret_cast<Object*>(handle), name);
  if (field.data == nullptr || field.size != num_bytes) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(field.data, buffer, num_bytes);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Object, typename Handle, typename Name>
cublasStatus_t get(Handle handle, Name name, void* buffer, std::size_t num_bytes,
                   std::size_t* num_written) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const Bytes field = attribute(*reinterpret_cast<Object*>(handle), name);
  if (field.data == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (num_written != nullptr) *num_written = field.size;
  if (num_bytes == 0) return CUBLAS_STATUS_SUCCESS;
  if (buffer == nullptr || num_bytes < field.size) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(buffer, field.data, field.size);
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

cublasStatus_t CUBLASWINAPI cublasLtDestroy(cublasLtHandle_t lightHandle) {
  if (lightHandle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete lightHandle;
  return CUBLAS_STATUS_SUCCESS;
}

std::size_t CUBLASWINAPI cublasLtGetVersion() {
  return CUBLAS_VERSION;
}

std::size_t CUBLASWINAPI cublasLtGetCudartVersion() {
  return CUDART_VERSION;
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
  return set<Operation>(matmulDesc, attr, buf, sizeInBytes);
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t matmulDesc,
                                                           cublasLtMatmulDescAttributes_t attr,
                                                           void* buf, std::size_t sizeInBytes,
                                                           std::size_t* sizeWritten) {
  return get<Operation>(matmulDesc, attr, buf, sizeInBytes, sizeWritten);
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
  return set<Layout>(matLayout, attr, buf, sizeInBytes);
}

cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t matLayout,
                                                             cublasLtMatrixLayoutAttribute_t attr,
                                                             void* buf, std::size_t sizeInBytes,
                                                             std::size_t* sizeWritten) {
  return get<Layout>(matLayout, attr, buf, sizeInBytes, sizeWritten);
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
  return set<Preference>(pref, attr, buf, sizeInBytes);
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceGetAttribute(
    cublasLtMatmulPreference_t pref, cublasLtMatmulPreferenceAttributes_t attr, void* buf,
    std::size_t sizeInBytes, std::size_t* sizeWritten) {
  return get<Preference>(pref, attr, buf, sizeInBytes, sizeWritten);
}
