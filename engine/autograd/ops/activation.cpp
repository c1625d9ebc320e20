#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "engine/trace/span.h"

namespace lockstep {
namespace {

const char* name_of(Activation activation) {
  switch (activation) {
    case Activation::none:
      return "Identity";
    case Activation::relu:
      return "ReLU";
    case Activation::gelu_erf:
    case Activation::gelu_tanh:
      return "GELU";
    case Activation::tanh:
      return "Tanh";
    case Activation::sigmoid:
      return "Sigmoid";
  }
  return "Activation";
}

// y = f(x): grad_x = grad_y * f'. GELU keeps x, the others keep y.
class ActivationNode final : public Node {
 public:
  ActivationNode(Activation activation, Tensor saved)
      : activation_(activation), saved_(std::move(saved)) {}
  const char* name() const override { return name_of(activation_); }
  Gradients backward(const Gradients& grad_outputs) override {
    Tensor grad_x = gradient_buffer(0);
    grad_x.backend().activation_backward(grad_x.stream(), activation_, unpack(saved_).view(),
                                         grad_outputs[0].view(), grad_x.view());
    return {grad_x};
  }
  void release_saved() override { saved_ = {}; }

 private:
  Activation activation_;
  SavedTensor saved_;
};

}  // namespace

Variable activate(const Variable& x, Activation activation) {
  const Tensor& input = x.value();
  if (activation == Activation::none) return x;
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, name_of(activation));
  Tensor y = Tensor::empty(input.shape(), input.dtype(), input.device());
  y.backend().activation_forward(y.stream(), activation, input.view(), y.view());
  Tensor saved = kernels::needs_preactivation(activation) ? input : y;
  return record<ActivationNode>({x}, std::move(y), activation, std::move(saved));
}

Variable relu(const Variable& x) {
  return activate(x, Activation::relu);
}
Variable tanh(const Variable& x) {
  return activate(x, Activation::tanh);
}
Variable sigmoid(const Variable& x) {
  return activate(x, Activation::sigmoid);
}
Variable gelu(const Variable& x, Activation form) {
  return activate(x, form);
}

}  // namespace lockstep
