#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "engine/trace/span.h"

namespace lockstep {
namespace {

// y = a * b, element by element: grad_a = grad_y * b, grad_b = grad_y * a.
class MultiplyNode final : public Node {
 public:
  MultiplyNode(Tensor a, Tensor b) : a_(std::move(a)), b_(std::move(b)) {}
  const char* name() const override { return "Multiply"; }
  Gradients backward(const Gradients& grad_outputs) override {
    return {times(0, grad_outputs[0], b_), times(1, grad_outputs[0], a_)};
  }
  void release_saved() override { a_ = b_ = {}; }

 private:
  Tensor times(std::size_t input, const Tensor& grad_y, const SavedTensor& other) const {
    if (!wants_gradient(input)) return {};
    Tensor grad = gradient_buffer(input);
    grad.backend().multiply(grad.stream(), grad_y.view(), unpack(other).view(), grad.view());
    return grad;
  }

  SavedTensor a_;
  SavedTensor b_;
};

// y = factor * x.
class ScaleNode final : public Node {
 public:
  explicit ScaleNode(double factor) : factor_(factor) {}
  const char* name() const override { return "Scale"; }
  Gradients backward(const Gradients& grad_outputs) override {
    Tensor grad_x = gradient_buffer(0);
    grad_x.backend().scale(grad_x.stream(), grad_outputs[0].view(), factor_, grad_x.view());
    return {grad_x};
  }
  void release_saved() override {}

 private:
  double factor_;
};

}  // namespace

Variable multiply(const Variable& a, const Variable& b) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "Multiply");
  require_same_device("multiply", {&a.value(), &b.value()});
  require_same_dtype("multiply", {&a.value(), &b.value()});
  require_same_shape("multiply", a.value(), b.value());
  Tensor y = Tensor::empty(a.shape(), a.dtype(), a.device());
  y.backend().multiply(y.stream(), a.value().view(), b.value().view(), y.view());
  return record<MultiplyNode>({a, b}, std::move(y), a.value(), b.value());
}

Variable scale(const Variable& x, double factor) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "Scale");
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  y.backend().scale(y.stream(), x.value().view(), factor, y.view());
  return record<ScaleNode>({x}, std::move(y), factor);
}

}  // namespace lockstep
