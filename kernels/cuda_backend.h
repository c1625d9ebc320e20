// The CUDA backend, or what stands for it in a build without CUDA; CMake links one of the two.
#pragma once

#include "kernels/backend.h"

namespace lockstep::kernels {

// nullptr in a build without CUDA.
Backend* cuda_backend();

}  // namespace lockstep::kernels
