// The linear layer with its activation.
#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "engine/core/error.h"
#include "engine/trace/span.h"

namespace lockstep {

// y = f(z), z = x * W^T + b:
//   grad_z = grad_y * f'     [batch, out]
//   grad_x = grad_z * W      [batch, in]
//   grad_W = grad_z^T * x    [out, in]
//   grad_b = column sums of grad_z
Variable linear(const Variable& rows, const Variable& weight, const Variable& bias,
                Activation activation) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "Linear");
  const Tensor& w = weight.value();
  const Tensor b = bias.defined() ? bias.value() : Tensor();
  const Variable x = as_activation("linear", rows, w.dtype());
  const Tensor& input = x.value();
  require_same_device("linear", {&input, &w, &b});
  require_same_dtype("linear", {&w, &b});
  if (input.num_dims() != 2 || w.num_dims() != 2 || input.size(1) != w.size(1)) {
    fail(ErrorCode::Shape, "linear",
         "input {} does not fit weight {}: expected [batch, in] and [out, in]",
         to_string(input.shape()), to_string(w.shape()));
  }
  if (b.defined() && b.shape() != Shape{w.size(0)}) {
    fail(ErrorCode::Shape, "linear", "bias {} does not fit weight {}", to_string(b.shape()),
         to_string(w.shape()));
  }
  Tensor y = Tensor::empty({input.size(0), w.size(0)}, input.dtype(), input.device());
  Tensor activated;
  MatrixView preactivation;
  if (kernels::needs_preactivation(activation)) {
    activated = Tensor::empty_like(y);
    preactivation = activated.matrix();
  } else if (activation != Activation::none) {
    activated = y;
  }
  y.backend().linear_forward(y.stream(), {.x = input.matrix(),
                                          .weight = w.matrix(),
                                          .bias = view_or_none(b),
                                          .activation = activation,
                                          .y = y.matrix(),
                                          .preactivation = preactivation});
  const auto backward = [activation](const Node& node, const Gradients& grad_outputs) {
    const Tensor grad_z = gradient_before(activation, node.saved(2), grad_outputs[0]);
    Gradients grads = node.gradient_buffers();
    // Only values that enter a wanted gradient must be unchanged: the weight of a first layer may
    // change.
    const Tensor& kept_x = grads[1].defined() ? node.saved(0) : node.unchecked(0);
    const Tensor& kept_w = grads[0].defined() ? node.saved(1) : node.unchecked(1);
    grad_z.backend().linear_backward(
        grad_z.stream(), {.x = kept_x.matrix(),
                          .weight = kept_w.matrix(),
                          .grad_z = grad_z.matrix(),
                          .grad_x = grads[0].defined() ? grads[0].matrix() : MatrixView{},
                          .grad_weight = grads[1].defined() ? grads[1].matrix() : MatrixView{},
                          .grad_bias = view_or_none(grads[2])});
    return grads;
  };
  return record("Linear", {x, weight, bias}, std::move(y), {input, w, activated}, backward);
}

}  // namespace lockstep
