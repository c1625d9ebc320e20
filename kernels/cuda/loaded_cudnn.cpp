// Loads cuDNN at run time, as loaded_cublas_lt.cpp does cuBLASLt.
#include "engine/runtime/shared_library.h"
#include "kernels/cuda/cudnn_library.h"

namespace lockstep::kernels::cuda {

CudnnLibrary load_cudnn() {
  CudnnLibrary result;
  const runtime::SharedLibrary file = runtime::load_library(
      "LOCKSTEP_CUDNN_LIBRARY", LOCKSTEP_CUDNN_NAME, LOCKSTEP_CUDNN_BUILD_PATH);
  if (!file.is_loaded()) {
    result.problem = file.problem();
    return result;
  }
#define LOCKSTEP_FIND(name) result.name = file.find<decltype(::name)>(#name);
  LOCKSTEP_FIND(cudnnGetProperty)
  LOCKSTEP_CUDNN_FUNCTIONS(LOCKSTEP_FIND)
#undef LOCKSTEP_FIND
  if (result.cudnnGetProperty == nullptr) result.problem = file.path() + " is not cuDNN";
  return result;
}

}  // namespace lockstep::kernels::cuda
