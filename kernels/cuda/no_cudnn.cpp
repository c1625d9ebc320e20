// Stands in for cudnn_convolution.cpp and cudnn_library.cpp in a build without cuDNN's header.
#include "kernels/cuda/cudnn_convolution.h"
#include "kernels/image_calls.h"

namespace lockstep::kernels {

std::string cuda_convolutions() {
  return "products of patches: this build has no cuDNN (LOCKSTEP_CUDNN of CMake)";
}

namespace cuda {

bool convolve_by_cudnn(Stream&, const ConvForward&) {
  return false;
}

ConvBackward left_by_cudnn(Stream&, const ConvBackward& call) {
  return call;
}

}  // namespace cuda
}  // namespace lockstep::kernels
