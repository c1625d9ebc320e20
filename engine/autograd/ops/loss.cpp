#include <utility>

#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "engine/core/error.h"
#include "engine/core/half.h"
#include "engine/trace/span.h"

namespace lockstep {
// loss = mean or sum over rows of -log softmax(logits)[label]:
// grad_logits = (softmax(logits) - onehot(label)) * grad_loss (/ rows for mean).
Variable cross_entropy(const Variable& logits, const Tensor& labels, Reduction reduction,
                       Logits use) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "CrossEntropy");
  const Tensor& x = logits.value();
  require_same_device("cross_entropy", {&x, &labels});
  if (x.num_dims() != 2 || labels.shape() != Shape{x.size(0)}) {
    fail(ErrorCode::Shape, "cross_entropy",
         "expected logits [batch, classes] and labels [batch], found {} and {}",
         to_string(x.shape()), to_string(labels.shape()));
  }
  require(labels.dtype() == DType::int64, ErrorCode::DType, "cross_entropy",
          "labels must be int64, found {}", to_string(labels.dtype()));
  Tensor loss = Tensor::empty({}, arithmetic_dtype(x.dtype()), x.device());
  Tensor probabilities = use == Logits::consume ? x : Tensor::empty_like(x);
  if (use == Logits::consume) x.bump_version();
  loss.backend().softmax_cross_entropy_forward(
      loss.stream(), {x.matrix(), labels.view(), reduction, probabilities.matrix(), loss.view()});
  const auto backward = [reduction, use](const Node& node, const Gradients& grad_outputs) {
    const Tensor& classes = node.saved(1);
    const Tensor& kept = node.saved(0);
    const Tensor grad_logits = use == Logits::consume ? kept : node.gradient_buffer(0);
    if (use == Logits::consume) grad_logits.bump_version();
    grad_logits.backend().softmax_cross_entropy_backward(
        grad_logits.stream(),
        {kept.matrix(), classes.view(), reduction, grad_outputs[0].view(), grad_logits.matrix()});
    return Gradients{grad_logits};
  };
  const bool is_mean = reduction == Reduction::mean;
  return record(is_mean ? "CrossEntropy" : "CrossEntropySum", {logits}, std::move(loss),
                {probabilities, labels}, backward);
}

// loss = mean or sum of (x - target)^2: grad_x = 2 (x - target) * grad_loss (/ elements for mean).
Variable mse_loss(const Variable& prediction, const Tensor& target, Reduction reduction) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "MseLoss");
  const Variable x = to(prediction, arithmetic_dtype(prediction.dtype()));
  require_same_device("mse_loss", {&x.value(), &target});
  require_same_dtype("mse_loss", {&x.value(), &target});
  require_same_shape("mse_loss", x.value(), target);
  Tensor loss = Tensor::empty({}, x.dtype(), x.device());
  loss.backend().mse_forward(loss.stream(),
                             {x.value().view(), target.view(), reduction, loss.view()});
  const auto backward = [reduction](const Node& node, const Gradients& grad_outputs) {
    const Tensor grad_x = node.gradient_buffer(0);
    grad_x.backend().mse_backward(grad_x.stream(),
                                  {node.saved(0).view(), node.saved(1).view(), reduction,
                                   grad_outputs[0].view(), grad_x.view()});
    return Gradients{grad_x};
  };
  const bool is_mean = reduction == Reduction::mean;
  return record(is_mean ? "MseLoss" : "MseLossSum", {x}, std::move(loss), {x.value(), target},
                backward);
}

}  // namespace lockstep
