#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "engine/trace/span.h"

namespace lockstep {
namespace {

// y = a + b: both gradients are the gradient of y.
class AddNode final : public Node {
 public:
  const char* name() const override { return "Add"; }
  Gradients backward(const Gradients& grad_outputs) override {
    return {grad_outputs[0], grad_outputs[0]};
  }
  void release_saved() override {}
};

// y = a - b.
class SubtractNode final : public Node {
 public:
  const char* name() const override { return "Subtract"; }
  Gradients backward(const Gradients& grad_outputs) override {
    const Tensor& grad_y = grad_outputs[0];
    Tensor grad_b;
    if (wants_gradient(1)) {
      grad_b = gradient_buffer(1);
      grad_b.backend().scale(grad_b.stream(), grad_y.view(), -1.0, grad_b.view());
    }
    return {grad_y, grad_b};
  }
  void release_saved() override {}
};

void check(std::string_view operation, const Tensor& a, const Tensor& b) {
  require_same_device(operation, {&a, &b});
  require_same_dtype(operation, {&a, &b});
  require_same_shape(operation, a, b);
}

}  // namespace

Variable add(const Variable& a, const Variable& b) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "Add");
  check("add", a.value(), b.value());
  Tensor y = Tensor::empty(a.shape(), a.dtype(), a.device());
  y.backend().add(y.stream(), a.value().view(), b.value().view(), y.view());
  return record<AddNode>({a, b}, std::move(y));
}

Variable subtract(const Variable& a, const Variable& b) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "Subtract");
  check("subtract", a.value(), b.value());
  Tensor y = a.value().clone();
  y.backend().axpy(y.stream(), -1.0, b.value().view(), y.view());
  return record<SubtractNode>({a, b}, std::move(y));
}

}  // namespace lockstep
