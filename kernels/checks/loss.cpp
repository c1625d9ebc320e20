#include "kernels/checks.h"
#include "kernels/checks/views.h"

namespace lockstep::kernels::checks {

void softmax_cross_entropy_forward(const ConstMatrixView& logits, const ConstTensorView& labels,
                                   const ConstMatrixView& probabilities,
                                   const ConstTensorView& loss,
                                   const CrossEntropyGradient& gradient) {
  const auto* name = "cross_entropy";
  require_vector(name, "labels", labels, DType::int64, logits.rows);
  require_matrix(name, "probabilities", probabilities, logits.dtype, logits.rows, logits.cols);
  require_vector(name, "loss", loss, logits.dtype, 1);
  if (gradient.grad_logits.data == nullptr) return;
  require_vector(name, "grad_loss", gradient.grad_loss, logits.dtype, 1);
  require_matrix(name, "grad_logits", gradient.grad_logits, logits.dtype, logits.rows, logits.cols);
}

void linear_cross_entropy(const LinearCrossEntropy& call) {
  linear_forward(call.forward());
  softmax_cross_entropy_forward(call.probabilities, call.labels, call.probabilities, call.loss,
                                call.gradient);
  require(call.gradient.grad_logits.data != nullptr || call.x.rows == 0, ErrorCode::Shape,
          "cross_entropy", "grad_logits has no data, and is wanted");
  if (call.grad_x.data) linear_backward(call.backward());
}

void softmax_cross_entropy_backward(const ConstMatrixView& probabilities,
                                    const ConstTensorView& labels, const ConstTensorView& grad_loss,
                                    const ConstMatrixView& grad_logits) {
  const auto* name = "cross_entropy backward";
  const DType dtype = probabilities.dtype;
  require_vector(name, "labels", labels, DType::int64, probabilities.rows);
  require_vector(name, "grad_loss", grad_loss, dtype, 1);
  require_matrix(name, "grad_logits", grad_logits, dtype, probabilities.rows, probabilities.cols);
}

void mse_forward(const ConstTensorView& x, const ConstTensorView& target,
                 const ConstTensorView& loss) {
  require_like("mse", "target", target, x);
  require_vector("mse", "loss", loss, x.dtype, 1);
}

void mse_backward(const ConstTensorView& x, const ConstTensorView& target,
                  const ConstTensorView& grad_loss, const ConstTensorView& grad_x) {
  require_like("mse backward", "target", target, x);
  require_vector("mse backward", "grad_loss", grad_loss, x.dtype, 1);
  require_like("mse backward", "grad_x", grad_x, x);
}

}  // namespace lockstep::kernels::checks
