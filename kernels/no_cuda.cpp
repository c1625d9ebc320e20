#include "kernels/backend.h"

namespace lockstep::kernels {

Backend* cuda_backend() {
  return nullptr;
}

}  // namespace lockstep::kernels
