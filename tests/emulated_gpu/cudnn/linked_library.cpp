// The cuDNN of a build for the emulated GPU: this folder, linked into the program.
#include "kernels/cuda/cudnn_library.h"
#include "tests/emulated_gpu/cudnn/control.h"

namespace lockstep::kernels::cuda {

CudnnLibrary load_cudnn() {
  CudnnLibrary result;
  if (emulated_gpu::cudnn::wishes().is_absent) {
    result.problem = "libcudnn.so.9: a test wishes it away";
    return result;
  }
#define LOCKSTEP_LINK(name) result.name = &::name;
  LOCKSTEP_LINK(cudnnGetProperty)
  LOCKSTEP_CUDNN_FUNCTIONS(LOCKSTEP_LINK)
#undef LOCKSTEP_LINK
  return result;
}

}  // namespace lockstep::kernels::cuda
