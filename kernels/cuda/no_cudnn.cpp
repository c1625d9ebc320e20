// What a build without cuDNN's header has in place of cudnn_convolution.cpp.
#include "kernels/backend.h"
#include "kernels/cuda/cudnn_convolution.h"

namespace lockstep::kernels {

std::string cuda_convolutions() {
  return "products of patches: this build has no cuDNN (LOCKSTEP_CUDNN of CMake)";
}

namespace cuda {

bool convolve_by_cudnn(Stream&, const ConvForward&) {
  return false;
}

bool convolve_by_cudnn(Stream&, const ConvBackward&) {
  return false;
}

}  // namespace cuda
}  // namespace lockstep::kernels
