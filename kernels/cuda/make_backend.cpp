#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda_backend.h"

namespace lockstep::kernels {

Backend* cuda_backend() {
  // Never destroyed: tensors in static variables may be used until the very end.
  static cuda::CudaBackend& backend = *new cuda::CudaBackend;
  return &backend;
}

}  // namespace lockstep::kernels
