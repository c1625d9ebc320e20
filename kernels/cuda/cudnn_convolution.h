// Convolutions by cuDNN, where a machine has it: an optional way beside the products of patches
// (patches.cu), which are the default to read, the tests' reference, and the way for what cuDNN
// does not do. cuda_convolutions() in kernels/image_calls.h says which way this process takes.
//
//   Choice:    cuDNN of the headers' major version is used where it is found, unless
//              LOCKSTEP_CUDNN=off. The log names a version that does not fit.
//   Layout:    the engine's own: images NHWC, weights [features, kernel height, kernel width,
//              channels].
//   Precision: float32 by FMA arithmetic (highest) or with TF32 (high and medium), and bfloat16
//              images, sums in float32. Weights of bfloat16 images are rounded into a copy, and
//              their gradient is converted from bfloat16. float64 goes by patches.
//   Bits:      the algorithm is the first deterministic one that the library expects to be fast,
//              asked once per shape. Nothing is timed, so all ranks and runs choose alike.
//   Captures:  a new shape cannot be captured, so a step runs once before it is captured.
//   Memory:    the library's workspace lies in the call's scratch or comes from the device's pool.
#pragma once

#include "kernels/image_calls.h"

namespace lockstep::kernels::cuda {

// Enqueues the convolution. Returns false, with nothing enqueued, if cuDNN is not used or refuses
// the call, whatever its status: a line of the log at debug says why.
// Throws Error{Cuda} if the library fails in execution, Error{State} for a new shape in a capture.
bool convolve_by_cudnn(Stream& stream, const ConvForward& call);
// Enqueues the gradients of images and of weights, each unless cuDNN refuses it. Returns the call
// without them: what patches must do.
ConvBackward left_by_cudnn(Stream& stream, const ConvBackward& call);

// For tests: decides anew whether cuDNN is used, and asks for all algorithms again.
// REQUIRES: no convolution is being enqueued.
void forget_cudnn();

}  // namespace lockstep::kernels::cuda
