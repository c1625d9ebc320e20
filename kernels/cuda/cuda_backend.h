// The CUDA backend: float32, float64 and bfloat16 activations, by cuBLASLt and our own kernels.
//
// kernels/backend.h says what each method does; one source file per family. Rules of this folder:
//   Order:    a method only enqueues kernels on the stream; it does not wait, read back or
//             allocate, so that every method can be captured in a CUDA graph. There are three
//             exceptions: a stream's first reduction reserves memory (launch.h), a new matrix
//             product is timed (product.h), and cuDNN is asked for the algorithm of a new
//             convolution (cudnn_convolution.h). So a step runs once before it is captured.
//   Results:  depend only on shapes and values: sums are cut by size and added in a fixed order,
//             never by atomic additions.
//   Faults:   an index or label outside its range is written to the stream's DeviceFault, and the
//             host's next wait throws it. Such a row is read as zeros by gather_rows, makes the
//             loss NaN, and has no gradient.
#pragma once

#include "kernels/calls.h"

namespace lockstep::kernels::cuda {

class CudaBackend final : public Backend {
 public:
  LOCKSTEP_KERNELS(LOCKSTEP_OVERRIDE)
  std::size_t conv_scratch(const Windows& windows) const override;
};

}  // namespace lockstep::kernels::cuda
