#include "kernels/backend.h"
#include "kernels/image_calls.h"

namespace lockstep::kernels {

Backend* cuda_backend() {
  return nullptr;
}

std::string cuda_convolutions() {
  return {};
}

}  // namespace lockstep::kernels
