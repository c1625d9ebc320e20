// Loads cuDNN at run time, as loaded_cublas_lt.cpp does cuBLASLt.
#include <string_view>

#include "engine/runtime/shared_library.h"
#include "kernels/cuda/cudnn_library.h"

namespace lockstep::kernels::cuda {

CudnnLibrary load_cudnn() {
  using runtime::SharedLibrary;
  CudnnLibrary result;
  const std::string path = runtime::library_path("LOCKSTEP_CUDNN_LIBRARY", LOCKSTEP_CUDNN_NAME);
  SharedLibrary file(path);
  const std::string problem = file.problem();
  constexpr std::string_view kBuildPath = LOCKSTEP_CUDNN_BUILD_PATH;  // empty: it had none
  if (!file.is_loaded() && path == LOCKSTEP_CUDNN_NAME && !kBuildPath.empty()) {
    file = SharedLibrary(LOCKSTEP_CUDNN_BUILD_PATH);
  }
  if (!file.is_loaded()) {
    result.problem = problem;
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
