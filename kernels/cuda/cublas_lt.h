// cuBLASLt: checked calls, its handle, and its descriptors as owned objects.
//
// A product is described by objects (the operation and the layouts of its matrices), then an
// algorithm is chosen for them, then they are launched. Descriptors live on the host; making one
// takes about 100 ns.
// Reference: docs.nvidia.com/cuda/cublas, "Using the cuBLASLt API".
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <utility>

namespace lockstep::kernels::cuda {

// Throws Error{Cuda}: "[cublasLtMatmul] failed: the call's arguments ... (status 7)".
[[noreturn]] void fail_cublas(const char* call, cublasStatus_t status);

inline void check_cublas(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]] {
    fail_cublas(call, status);
  }
}

// The library's state on one physical GPU, shared by its logical devices and all threads (the
// library allows it). Never destroyed: tensors in static variables may be used until the very end.
cublasLtHandle_t cublas_lt(int gpu);

// Owns one object of the library. It never throws when it goes.
template <typename Object, cublasStatus_t (*kDestroy)(Object)>
class Descriptor {
 public:
  ~Descriptor() {
    if (object_ != nullptr) kDestroy(object_);
  }
  Descriptor(Descriptor&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  Object get() const { return object_; }

 protected:
  Descriptor() = default;
  Object object_ = nullptr;
};

// What to compute: transpositions, precision, and the epilogue, which works on the result before it
// is written.
class MatmulDescriptor : public Descriptor<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> {
 public:
  // alpha and beta are read from the host when a product is enqueued (the default pointer mode).
  MatmulDescriptor(cublasComputeType_t compute_type, cudaDataType_t scale_type);

  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check_cublas(cublasLtMatmulDescSetAttribute(object_, attribute, &value, sizeof(value)),
                 "cublasLtMatmulDescSetAttribute");
  }
};

// A column-major matrix: element (i, j) is at j * leading_dimension + i.
class MatrixLayout : public Descriptor<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> {
 public:
  MatrixLayout(cudaDataType_t type, std::uint64_t rows, std::uint64_t cols,
               std::int64_t leading_dimension);
  // `batch` such matrices; stride 0 is the same one again and again.
  void set_batch(std::int32_t batch, std::int64_t stride);
};

// What an algorithm may ask for.
class MatmulPreference
    : public Descriptor<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> {
 public:
  MatmulPreference();

  template <typename Value>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
    check_cublas(cublasLtMatmulPreferenceSetAttribute(object_, attribute, &value, sizeof(value)),
                 "cublasLtMatmulPreferenceSetAttribute");
  }
};

}  // namespace lockstep::kernels::cuda

// CUBLAS_CHECK(cublasLtMatmul(...));
#define CUBLAS_CHECK(call) ::lockstep::kernels::cuda::check_cublas((call), #call)
