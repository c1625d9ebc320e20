// The functions of cuBLASLt that this folder calls: each passes its arguments on to the library,
// which is loaded at the first call. If it were linked in the usual way, its 400 MB would be mapped
// and relocated whenever a program starts (60 ms), even by ranks that compute on the CPU, and a
// program built with CUDA would not start at all without the library.
//
// It is looked for as LOCKSTEP_CUBLASLT_LIBRARY, then where the loader finds it, then where it was
// when this was built. Throws Error{Cuda} if it is not found. An emulated GPU (tests/emulated_gpu)
// has its own functions instead of these.
#include <cublasLt.h>

#include "engine/core/error.h"
#include "engine/runtime/shared_library.h"

namespace {

using lockstep::runtime::SharedLibrary;

SharedLibrary load() {
  SharedLibrary library = lockstep::runtime::load_library(
      "LOCKSTEP_CUBLASLT_LIBRARY", LOCKSTEP_CUBLASLT_NAME, LOCKSTEP_CUBLASLT_BUILD_PATH);
  lockstep::require(library.is_loaded(), lockstep::ErrorCode::Cuda, "cublasLt",
                    "no cuBLASLt was found: {}; install cuBLAS of the CUDA toolkit, or name the "
                    "file in LOCKSTEP_CUBLASLT_LIBRARY",
                    library.problem());
  return library;
}

const SharedLibrary& library() {
  static const SharedLibrary loaded = load();
  return loaded;
}

template <typename Function>
Function* find(const char* name) {
  Function* const function = library().find<Function>(name);
  lockstep::require(function != nullptr, lockstep::ErrorCode::Cuda, "cublasLt",
                    "{} has no {}: " LOCKSTEP_CUBLASLT_NAME " is expected", library().path(), name);
  return function;
}

}  // namespace

// PASS_ON(result, name, (parameters), arguments): defines the function.
#define PASS_ON(result, name, parameters, ...)                           \
  extern "C" result name parameters {                                    \
    static decltype(name)* const function = find<decltype(name)>(#name); \
    return function(__VA_ARGS__);                                        \
  }

PASS_ON(std::size_t, cublasLtGetVersion, ())
PASS_ON(const char*, cublasLtGetStatusString, (cublasStatus_t status), status)
PASS_ON(cublasStatus_t, cublasLtCreate, (cublasLtHandle_t * handle), handle)

PASS_ON(cublasStatus_t, cublasLtMatmulDescCreate,
        (cublasLtMatmulDesc_t * object, cublasComputeType_t compute, cudaDataType_t scale), object,
        compute, scale)
PASS_ON(cublasStatus_t, cublasLtMatmulDescSetAttribute,
        (cublasLtMatmulDesc_t object, cublasLtMatmulDescAttributes_t attribute, const void* value,
         std::size_t size),
        object, attribute, value, size)
PASS_ON(cublasStatus_t, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t object), object)

PASS_ON(cublasStatus_t, cublasLtMatrixLayoutCreate,
        (cublasLtMatrixLayout_t * object, cudaDataType type, std::uint64_t rows, std::uint64_t cols,
         std::int64_t leading_dimension),
        object, type, rows, cols, leading_dimension)
PASS_ON(cublasStatus_t, cublasLtMatrixLayoutSetAttribute,
        (cublasLtMatrixLayout_t object, cublasLtMatrixLayoutAttribute_t attribute,
         const void* value, std::size_t size),
        object, attribute, value, size)
PASS_ON(cublasStatus_t, cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t object), object)

PASS_ON(cublasStatus_t, cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t * object),
        object)
PASS_ON(cublasStatus_t, cublasLtMatmulPreferenceSetAttribute,
        (cublasLtMatmulPreference_t object, cublasLtMatmulPreferenceAttributes_t attribute,
         const void* value, std::size_t size),
        object, attribute, value, size)
PASS_ON(cublasStatus_t, cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t object),
        object)

PASS_ON(cublasStatus_t, cublasLtMatmulAlgoGetHeuristic,
        (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
         cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
         cublasLtMatmulPreference_t preference, int num_asked,
         cublasLtMatmulHeuristicResult_t* found, int* num_found),
        handle, operation, a, b, c, d, preference, num_asked, found, num_found)
PASS_ON(cublasStatus_t, cublasLtMatmulAlgoCheck,
        (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
         cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
         const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result),
        handle, operation, a, b, c, d, algorithm, result)
PASS_ON(cublasStatus_t, cublasLtMatmulAlgoConfigSetAttribute,
        (cublasLtMatmulAlgo_t * algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute,
         const void* value, std::size_t size),
        algorithm, attribute, value, size)
PASS_ON(cublasStatus_t, cublasLtMatmulAlgoConfigGetAttribute,
        (const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute,
         void* value, std::size_t size, std::size_t* num_written),
        algorithm, attribute, value, size, num_written)
PASS_ON(cublasStatus_t, cublasLtMatmul,
        (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
         cublasLtMatrixLayout_t of_a, const void* b, cublasLtMatrixLayout_t of_b, const void* beta,
         const void* c, cublasLtMatrixLayout_t of_c, void* d, cublasLtMatrixLayout_t of_d,
         const cublasLtMatmulAlgo_t* algorithm, void* workspace, std::size_t workspace_size,
         cudaStream_t stream),
        handle, operation, alpha, a, of_a, b, of_b, beta, c, of_c, d, of_d, algorithm, workspace,
        workspace_size, stream)
