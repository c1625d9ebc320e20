#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "engine/core/error.h"
#include "engine/trace/span.h"

namespace lockstep {
namespace {

// With z = x * W^T + b and y = f(z):
//   grad_z = grad_y * f'     [batch, out]
//   grad_x = grad_z * W      [batch, in]
//   grad_W = grad_z^T * x    [out, in]
//   grad_b = column sums of grad_z
class LinearNode final : public Node {
 public:
  LinearNode(Tensor x, Tensor weight, Tensor y, Tensor preactivation, Activation activation)
      : x_(std::move(x)),
        weight_(std::move(weight)),
        y_(std::move(y)),
        preactivation_(std::move(preactivation)),
        activation_(activation) {}
  const char* name() const override { return "Linear"; }

  Gradients backward(const Gradients& grad_outputs) override {
    const Tensor& grad_y = grad_outputs[0];
    Gradients grads(num_inputs());
    kernels::LinearBackward call;
    call.x = x_.matrix();
    call.weight = weight_.matrix();
    call.grad_y = grad_y.matrix();
    call.activation = activation_;
    Tensor scratch;
    if (activation_ != Activation::none) {
      scratch = Tensor::empty(grad_y.shape(), grad_y.dtype(), grad_y.device());
      call.scratch = scratch.matrix();
      if (y_.defined()) call.y = y_.matrix();
      if (preactivation_.defined()) call.preactivation = preactivation_.matrix();
    }
    if (wants_gradient(0)) {
      grads[0] = gradient_buffer(0);
      call.grad_x = grads[0].matrix();
    }
    if (wants_gradient(1)) {
      grads[1] = gradient_buffer(1);
      call.grad_weight = grads[1].matrix();
    }
    if (num_inputs() > 2 && wants_gradient(2)) {
      grads[2] = gradient_buffer(2);
      call.grad_bias = grads[2].view();
    }
    grad_y.backend().linear_backward(grad_y.stream(), call);
    return grads;
  }
  void release_saved() override { x_ = weight_ = y_ = preactivation_ = {}; }

 private:
  Tensor x_;
  Tensor weight_;
  Tensor y_;              // unless the activation is none or needs the preactivation
  Tensor preactivation_;  // only for GELU
  Activation activation_;
};

void check(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  require_same_device("linear", {&x, &weight, &bias});
  require_same_dtype("linear", {&x, &weight, &bias});
  if (x.num_dims() != 2 || weight.num_dims() != 2 || x.size(1) != weight.size(1)) {
    fail(ErrorCode::Shape, "linear",
         "input {} does not fit weight {}: expected [batch, in] and [out, in]",
         to_string(x.shape()), to_string(weight.shape()));
  }
  if (bias.defined() && bias.shape() != Shape{weight.size(0)}) {
    fail(ErrorCode::Shape, "linear", "bias {} does not fit weight {}", to_string(bias.shape()),
         to_string(weight.shape()));
  }
}

}  // namespace

Variable linear(const Variable& x, const Variable& weight, const Variable& bias,
                Activation activation) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "Linear");
  const Tensor& input = x.value();
  const Tensor bias_value = bias.defined() ? bias.value() : Tensor();
  check(input, weight.value(), bias_value);
  const Shape shape{input.size(0), weight.value().size(0)};
  Tensor y = Tensor::empty(shape, input.dtype(), input.device());
  Tensor preactivation;
  const bool is_recorded = needs_node(std::initializer_list<Variable>{x, weight, bias});
  kernels::LinearForward call;
  call.x = input.matrix();
  call.weight = weight.value().matrix();
  if (bias.defined()) call.bias = bias_value.view();
  call.y = y.matrix();
  call.activation = activation;
  if (is_recorded && kernels::needs_preactivation(activation)) {
    preactivation = Tensor::empty(shape, input.dtype(), input.device());
    call.preactivation = preactivation.matrix();
  }
  y.backend().linear_forward(y.stream(), call);
  const bool keeps_y = activation != Activation::none && !preactivation.defined();
  Tensor saved_y = keeps_y ? y : Tensor();
  return record<LinearNode>({x, weight, bias}, std::move(y), input, weight.value(),
                            std::move(saved_y), std::move(preactivation), activation);
}

}  // namespace lockstep
