// The CPU backend: float32 and float64, the reference that other backends are tested against.
//
// Matrix products are written in Eigen's vector instructions and cut over the device's threads
// (gemm.h); the rest is plain loops that the compiler vectorises. What a method does stands in
// kernels/backend.h; one source file per family. Results never depend on the number of threads or
// on addresses, only on shapes and values.
#pragma once

#include "kernels/backend.h"
#include "kernels/element_traits.h"

namespace lockstep::kernels {

// Calls function.operator()<float>() or <double>(); Error{DType} for another dtype.
template <typename Function>
void for_floating(DType dtype, const char* operation, Function&& function) {
  for_floating_of<DeviceType::cpu>(dtype, operation, function);
}

class EigenBackend final : public Backend {
 public:
  void copy(Stream& stream, ConstTensorView from, TensorView to) override;
  void copy_matrix(Stream& stream, ConstMatrixView from, MatrixView to) override;
  void fill(Stream& stream, TensorView to, double value) override;
  void gather_rows(Stream& stream, ConstMatrixView source, ConstTensorView indices, MatrixView to,
                   double scale) override;
  void add(Stream& stream, ConstTensorView a, ConstTensorView b, TensorView y) override;
  void multiply(Stream& stream, ConstTensorView a, ConstTensorView b, TensorView y) override;
  void scale(Stream& stream, ConstTensorView x, double factor, TensorView y) override;
  void axpy(Stream& stream, double factor, ConstTensorView x, TensorView y) override;
  void ordered_sum(Stream& stream, std::span<const ConstTensorView> sources, double factor,
                   TensorView y) override;
  void activation_forward(Stream& stream, Activation activation, ConstTensorView x,
                          TensorView y) override;
  void activation_backward(Stream& stream, Activation activation, ConstTensorView saved,
                           ConstTensorView grad_y, TensorView grad_x) override;
  void dropout(Stream& stream, const DropoutMask& mask, ConstMatrixView x, MatrixView y) override;
  void sum(Stream& stream, ConstTensorView x, TensorView y) override;
  void argmax_rows(Stream& stream, ConstMatrixView x, TensorView y) override;
  void norm(Stream& stream, std::span<const ConstTensorView> x, TensorView y) override;
  void matmul(Stream& stream, ConstMatrixView a, Transpose transpose_a, ConstMatrixView b,
              Transpose transpose_b, MatrixView c, Write write) override;
  void linear_forward(Stream& stream, ConstMatrixView x, ConstMatrixView weight,
                      ConstTensorView bias, Activation activation, MatrixView y,
                      MatrixView preactivation) override;
  void linear_backward(Stream& stream, ConstMatrixView x, ConstMatrixView weight,
                       ConstMatrixView grad_z, MatrixView grad_x, MatrixView grad_weight,
                       TensorView grad_bias) override;
  void softmax_cross_entropy_forward(Stream& stream, ConstMatrixView logits, ConstTensorView labels,
                                     Reduction reduction, MatrixView probabilities,
                                     TensorView loss) override;
  void softmax_cross_entropy_backward(Stream& stream, ConstMatrixView probabilities,
                                      ConstTensorView labels, Reduction reduction,
                                      ConstTensorView grad_loss, MatrixView grad_logits) override;
  void mse_forward(Stream& stream, ConstTensorView x, ConstTensorView target, Reduction reduction,
                   TensorView loss) override;
  void mse_backward(Stream& stream, ConstTensorView x, ConstTensorView target, Reduction reduction,
                    ConstTensorView grad_loss, TensorView grad_x) override;
  void batch_norm_forward(Stream& stream, const BatchNormForward& call) override;
  void batch_norm_backward(Stream& stream, const BatchNormBackward& call) override;
  void sgd(Stream& stream, std::span<const OptimizerParameter> parameters,
           const StepScalars& scalars, const SgdOptions& options) override;
  void adamw(Stream& stream, std::span<const OptimizerParameter> parameters,
             const StepScalars& scalars, const AdamWOptions& options) override;
  void clip(Stream& stream, std::span<const TensorView> tensors, ConstTensorView norm,
            double max_norm) override;
};

}  // namespace lockstep::kernels
