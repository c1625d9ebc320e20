// The only interface between the engine and a device: every kernel that a device must provide.
//
// A kernel's call is a struct: its operands with their names, as views (core), never tensors.
// calls.h holds those that every training step needs; image_calls.h, sequence_calls.h and
// norm_calls.h the others. A new device only has to implement Backend. These rules hold for all:
//   Memory:  views are contiguous unless a MatrixView says otherwise; outputs do not alias inputs
//            unless the call says so; outputs are overwritten unless the call says "adds". A view
//            without data is an input that there is not, or an output that is not wanted.
//   Order:   work follows all earlier work of `stream`; on the CPU it runs in the calling thread,
//            spread over the threads of stream.device().
//   Types:   floating operands share one dtype, float32 or float64; or activations and their
//            gradients are bfloat16, and all else is float32, in which the call is computed.
//   Empty:   zero rows or elements are valid everywhere.
//   Sizes:   REQUIRES shapes that fit and one dtype, which the operations of autograd check. Calls
//            that programs make directly (copies and element-by-element arithmetic) also check
//            them: Error{Shape}, Error{DType}.
//   Throws:  Error{DType} for a dtype the device has no kernel for.
// kernels/cpu is the reference that every other backend is tested against.
#pragma once

#include <cstddef>

#include "engine/core/device.h"
#include "engine/runtime/stream.h"

// Every kernel: Backend's method, and its call. Whatever runs or decorates all kernels is made from
// this list.
// clang-format off
#define LOCKSTEP_KERNELS(KERNEL) \
  /* calls.h */ \
  KERNEL(copy, Copy) KERNEL(copy_matrix, CopyMatrix) KERNEL(fill, Fill) \
  KERNEL(gather_rows, GatherRows) \
  KERNEL(add, Add) KERNEL(multiply, Multiply) KERNEL(scale, Scale) KERNEL(axpy, Axpy) \
  KERNEL(ordered_reduce, OrderedReduce) \
  KERNEL(sum, Sum) KERNEL(norm, Norm) KERNEL(argmax_rows, ArgmaxRows) \
  KERNEL(activation_forward, ActivationForward) KERNEL(activation_backward, ActivationBackward) \
  KERNEL(matmul, Matmul) \
  KERNEL(linear_forward, LinearForward) KERNEL(linear_backward, LinearBackward) \
  KERNEL(dropout, Dropout) \
  KERNEL(softmax_cross_entropy_forward, SoftmaxCrossEntropyForward) \
  KERNEL(softmax_cross_entropy_backward, SoftmaxCrossEntropyBackward) \
  KERNEL(mse_forward, MseForward) KERNEL(mse_backward, MseBackward) \
  KERNEL(sgd, Sgd) KERNEL(adamw, AdamW) KERNEL(clip, Clip) \
  /* image_calls.h */ \
  KERNEL(patches, Patches) KERNEL(fold_patches, FoldPatches) \
  KERNEL(conv_forward, ConvForward) KERNEL(conv_backward, ConvBackward) \
  KERNEL(pool_forward, PoolForward) KERNEL(pool_backward, PoolBackward) \
  KERNEL(transpose, TransposeMatrices) \
  /* sequence_calls.h */ \
  KERNEL(embedding_forward, EmbeddingForward) KERNEL(embedding_backward, EmbeddingBackward) \
  KERNEL(attention_forward, AttentionForward) KERNEL(attention_backward, AttentionBackward) \
  KERNEL(causal_softmax_forward, CausalSoftmaxForward) \
  KERNEL(causal_softmax_backward, CausalSoftmaxBackward) \
  /* norm_calls.h */ \
  KERNEL(layer_norm_forward, LayerNormForward) KERNEL(layer_norm_backward, LayerNormBackward) \
  KERNEL(batch_norm_forward, BatchNormForward) KERNEL(batch_norm_backward, BatchNormBackward) \
  KERNEL(batch_moments, BatchMoments) KERNEL(batch_norm_sums, BatchNormSums)
// clang-format on

namespace lockstep::kernels {

using runtime::Stream;

#define LOCKSTEP_DECLARE(method, Call) struct Call;
LOCKSTEP_KERNELS(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE
struct Windows;

class Backend {
 public:
  virtual ~Backend() = default;

#define LOCKSTEP_METHOD(method, Call) virtual void method(Stream& stream, const Call& call) = 0;
  LOCKSTEP_KERNELS(LOCKSTEP_METHOD)
#undef LOCKSTEP_METHOD

  // The elements of scratch memory that a convolution needs: for patches of some images at a time.
  virtual std::size_t conv_scratch(const Windows& windows) const = 0;
};

// Declares what a class that implements Backend overrides.
#define LOCKSTEP_OVERRIDE(method, Call) void method(Stream& stream, const Call& call) override;

// The backend of a device type. Throws Error{Device} if this build has none.
Backend& backend(DeviceType type);

// Replaces a type's backend, for example by a decorator of it; nullptr restores the original.
// REQUIRES: no kernel runs on such devices meanwhile; the backend outlives its use.
void set_backend(DeviceType type, Backend* backend);

// The CUDA backend, or nullptr in a build without CUDA: CMake links cuda/ or no_cuda.cpp.
Backend* cuda_backend();

}  // namespace lockstep::kernels
