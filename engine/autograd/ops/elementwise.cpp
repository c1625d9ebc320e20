// Operations that treat all elements alike, and sums over all of them.
#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "engine/core/error.h"
#include "engine/runtime/step_graph.h"
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
};

void require_alike(std::string_view operation, const Tensor& a, const Tensor& b) {
  require_same_device(operation, {&a, &b});
  require_same_dtype(operation, {&a, &b});
  require_same_shape(operation, a, b);
}

}  // namespace

Variable add(const Variable& a, const Variable& b) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "Add");
  require_alike("add", a.value(), b.value());
  Tensor y = Tensor::empty(a.shape(), a.dtype(), a.device());
  y.backend().add(y.stream(), a.value().view(), b.value().view(), y.view());
  return record<AddNode>({a, b}, std::move(y));
}

Variable subtract(const Variable& a, const Variable& b) {
  require_alike("subtract", a.value(), b.value());
  return add(a, scale(b, -1.0));
}

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

 private:
  double factor_;
};

}  // namespace

Variable multiply(const Variable& a, const Variable& b) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "Multiply");
  require_alike("multiply", a.value(), b.value());
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

Tensor gradient_before(Activation activation, const Tensor& saved, const Tensor& grad_y) {
  if (activation == Activation::none) return grad_y;
  const bool is_ours = grad_y.storage().use_count() == 1;  // then it may be overwritten
  Tensor grad_z = is_ours ? grad_y : Tensor::empty_like(grad_y);
  grad_z.backend().activation_backward(grad_z.stream(), activation, saved.view(), grad_y.view(),
                                       grad_z.view());
  return grad_z;
}

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

namespace {

// y = x * mask / (1 - p). The mask is a function of numbers, so backward draws it again instead of
// keeping it.
class DropoutNode final : public Node {
 public:
  explicit DropoutNode(const kernels::DropoutMask& mask) : mask_(mask) {}
  const char* name() const override { return "Dropout"; }
  Gradients backward(const Gradients& grad_outputs) override {
    Tensor grad_x = gradient_buffer(0);
    grad_x.backend().dropout(grad_x.stream(), mask_, grad_outputs[0].matrix(), grad_x.matrix());
    return {grad_x};
  }

 private:
  kernels::DropoutMask mask_;
};

}  // namespace

Variable dropout(const Variable& x, double probability, std::uint64_t seed, std::uint32_t layer) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "Dropout");
  require(probability >= 0 && probability <= 1, ErrorCode::Usage, "dropout",
          "dropout probability has to be between 0 and 1, but got {}", probability);
  const ThreadContext& context = thread_context();
  kernels::DropoutMask mask{probability, seed, context.step, layer, context.first_row};
  // A graph draws with the step number of each launch.
  if (const std::int64_t* step = runtime::captured_step_number(x.device())) {
    mask.step_on_device = {step, DType::int64, 1};
  }
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  y.backend().dropout(y.stream(), mask, x.value().matrix(), y.matrix());
  return record<DropoutNode>({x}, std::move(y), mask);
}

namespace {

// y = the sum of x: every element's gradient is that of y.
class SumNode final : public Node {
 public:
  const char* name() const override { return "Sum"; }
  Gradients backward(const Gradients& grad_outputs) override {
    const Tensor& grad_y = grad_outputs[0];
    Tensor grad_x = gradient_buffer(0);
    // A matrix with one column, whose rows are all the same element.
    ConstMatrixView repeated = matrix_view(grad_y.raw(), grad_y.dtype(), grad_x.num_elements(), 1);
    repeated.leading_dimension = 0;
    grad_x.backend().copy_matrix(
        grad_x.stream(), repeated,
        matrix_view(grad_x.raw(), grad_x.dtype(), grad_x.num_elements(), 1));
    return {grad_x};
  }
};

}  // namespace

Variable sum(const Variable& x) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "Sum");
  Tensor y = Tensor::empty({}, x.dtype(), x.device());
  y.backend().sum(y.stream(), x.value().view(), y.view());
  return record<SumNode>({x}, std::move(y));
}

Variable mean(const Variable& x) {
  return scale(sum(x), 1.0 / static_cast<double>(x.value().num_elements()));
}

}  // namespace lockstep
