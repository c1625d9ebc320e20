#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "engine/trace/span.h"

namespace lockstep {
namespace {

// y = factor * (sum of x): every element's gradient is factor * grad_y.
class SumNode final : public Node {
 public:
  explicit SumNode(double factor) : factor_(factor) {}
  const char* name() const override { return factor_ == 1.0 ? "Sum" : "Mean"; }
  Gradients backward(const Gradients& grad_outputs) override {
    Tensor grad_x = gradient_buffer(0);
    grad_x.fill(factor_ * grad_outputs[0].item());
    return {grad_x};
  }
  void release_saved() override {}

 private:
  double factor_;
};

Variable scaled_sum(const Variable& x, double factor) {
  Tensor y = Tensor::empty({}, x.dtype(), x.device());
  y.backend().sum(y.stream(), x.value().view(), y.view());
  if (factor != 1.0) y.backend().scale(y.stream(), y.view(), factor, y.view());
  return record<SumNode>({x}, std::move(y), factor);
}

}  // namespace

Variable sum(const Variable& x) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "Sum");
  return scaled_sum(x, 1.0);
}

Variable mean(const Variable& x) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "Mean");
  return scaled_sum(x, 1.0 / static_cast<double>(x.value().num_elements()));
}

}  // namespace lockstep
