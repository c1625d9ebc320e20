// What every backend requires of the arguments of its methods: checks::add(a, b, y) throws unless
// these are sizes and types that Backend::add takes. A kernel that got past its check reads and
// writes only inside its views.
//
// There is one function for each method of Backend (backend.h), with its name, its parameters less
// the stream and what may have any value, and the operation's name in its errors; it looks at no
// element. A method calls it first, so that a bad call has the same error on every device and
// changes nothing. Not here is what depends on the device: dtypes that it has no kernel for (but
// their error is, below), and values in its memory, such as labels.
// Throws:  Error{Shape} for sizes, Error{DType} for types, Error{Usage} for a number out of range.
//
// No formatter is included here: .cu files need none.
#pragma once

#include <span>

#include "kernels/backend.h"

namespace lockstep::kernels::checks {

// --- moving ---
void copy(const ConstTensorView& from, const ConstTensorView& to);
void copy_matrix(const ConstMatrixView& from, const ConstMatrixView& to);
void convert(const ConstTensorView& from, const ConstTensorView& to);
void gather_rows(const ConstMatrixView& source, const ConstTensorView& indices,
                 const ConstMatrixView& to, const LabelsOfRows& labels);

// --- element by element ---
void add(const ConstTensorView& a, const ConstTensorView& b, const ConstTensorView& y);
void multiply(const ConstTensorView& a, const ConstTensorView& b, const ConstTensorView& y);
void scale(const ConstTensorView& x, const ConstTensorView& y);
void axpy(const ConstTensorView& x, const ConstTensorView& y);
void ordered_sum(std::span<const ConstTensorView> sources, double factor, const ConstTensorView& y);
void activation_forward(const ConstTensorView& x, const ConstTensorView& y);
void activation_backward(const ConstTensorView& saved, const ConstTensorView& grad_y,
                         const ConstTensorView& grad_x);
void dropout(const DropoutMask& mask, const ConstMatrixView& x, const ConstMatrixView& y);

// --- reductions ---
void sum(const ConstTensorView& x, const ConstTensorView& y);
void argmax_rows(const ConstMatrixView& x, const ConstTensorView& y);
void norm(const ConstTensorView& y);

// --- matrix products ---
void matmul(const ConstMatrixView& a, Transpose transpose_a, const ConstMatrixView& b,
            Transpose transpose_b, const ConstMatrixView& c);
void linear_forward(const ConstMatrixView& x, const ConstMatrixView& weight,
                    const ConstTensorView& bias, const ConstMatrixView& y,
                    const ConstMatrixView& preactivation);
void linear_backward(const ConstMatrixView& x, const ConstMatrixView& weight,
                     const ConstMatrixView& grad_z, const ConstMatrixView& grad_x,
                     const ConstMatrixView& grad_weight, const ConstTensorView& grad_bias);

// --- losses ---
void softmax_cross_entropy_forward(const ConstMatrixView& logits, const ConstTensorView& labels,
                                   const ConstMatrixView& probabilities,
                                   const ConstTensorView& loss);
void softmax_cross_entropy_backward(const ConstMatrixView& probabilities,
                                    const ConstTensorView& labels, const ConstTensorView& grad_loss,
                                    const ConstMatrixView& grad_logits);
void mse_forward(const ConstTensorView& x, const ConstTensorView& target,
                 const ConstTensorView& loss);
void mse_backward(const ConstTensorView& x, const ConstTensorView& target,
                  const ConstTensorView& grad_loss, const ConstTensorView& grad_x);

// --- normalisation ---
void batch_norm_forward(const BatchNormForward& call);
void batch_norm_backward(const BatchNormBackward& call);

// --- many tensors in one call ---
void sgd(std::span<const SgdParameter> parameters, const StepScalars& scalars,
         const SgdOptions& options);
void adamw(std::span<const AdamWParameter> parameters, const StepScalars& scalars);
void multi_clip(const ConstTensorView& norm);
void pack(std::span<const PackItem> items, const ConstTensorView& bucket);
void unpack(const ConstTensorView& bucket, std::span<const PackItem> items);

// Error{DType}: "the CPU backend has no kernel for int64; convert to float32 or float64".
[[noreturn]] void fail_dtype(DeviceType device, const char* operation, DType dtype);

}  // namespace lockstep::kernels::checks
