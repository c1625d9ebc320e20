// Handles, descriptors and their attributes, and the texts of statuses.
#include <cstring>

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
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return bytes_of(operation.transpose_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return bytes_of(operation.transpose_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return bytes_of(operation.epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return bytes_of(operation.bias);
    default:
      return {};
  }
}

Bytes attribute(Layout& layout, cublasLtMatrixLayoutAttribute_t name) {
  switch (name) {
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
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return bytes_of(preference.max_workspace_bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return bytes_of(preference.alignment_a);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return bytes_of(preference.alignment_b);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return bytes_of(preference.alignment_c);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return bytes_of(preference.alignment_d);
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
  return set<Operation>(matmulDesc, attr, buf, sizeInBytes);
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

const char* CUBLASWINAPI cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "a status of the emulated cuBLASLt";
}
