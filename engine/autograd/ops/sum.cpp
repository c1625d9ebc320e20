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
    Tensor grad_y = grad_outputs[0];
    if (factor_ != 1.0) {
      grad_y = Tensor::empty(grad_y.shape(), grad_y.dtype(), grad_y.device());
      grad_y.backend().scale(grad_y.stream(), grad_outputs[0].view(), factor_, grad_y.view());
    }
    // A column whose rows are all the one element.
    ConstMatrixView repeated = matrix_view(grad_y.raw(), grad_y.dtype(), grad_x.num_elements(), 1);
    repeated.leading_dimension = 0;
    grad_x.backend().copy_matrix(
        grad_x.stream(), repeated,
        matrix_view(grad_x.raw(), grad_x.dtype(), grad_x.num_elements(), 1));
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
