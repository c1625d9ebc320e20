// Operations that treat all elements alike, and sums over all of them.
#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "engine/core/error.h"
#include "engine/core/half.h"
#include "engine/runtime/step_graph.h"
#include "engine/trace/span.h"

namespace lockstep {
namespace {

void require_alike(std::string_view operation, const Tensor& a, const Tensor& b) {
  require_same_device(operation, {&a, &b});
  require_same_dtype(operation, {&a, &b});
  require_same_shape(operation, a, b);
}

// The operands of a sum or product: bfloat16 becomes float32 beside float32.
struct Operands {
  Variable a, b;

  Operands(const Variable& left, const Variable& right) : a(left), b(right) {
    if (arithmetic_dtype(a.dtype()) == b.dtype()) a = to(a, b.dtype());
    if (arithmetic_dtype(b.dtype()) == a.dtype()) b = to(b, a.dtype());
  }
};

}  // namespace

Variable add(const Variable& left, const Variable& right) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "Add");
  const auto [a, b] = Operands(left, right);
  require_alike("add", a.value(), b.value());
  Tensor y = Tensor::empty_like(a.value());
  y.backend().add(y.stream(), {a.value().view(), b.value().view(), y.view()});
  const auto backward = [](const Node&, const Gradients& grad_outputs) {
    return Gradients{grad_outputs[0], grad_outputs[0]};
  };
  return record("Add", {a, b}, std::move(y), {}, backward);
}

Variable subtract(const Variable& left, const Variable& right) {
  const auto [a, b] = Operands(left, right);
  require_alike("subtract", a.value(), b.value());
  return add(a, scale(b, -1.0));
}

// grad_a = grad_y * b, grad_b = grad_y * a
Variable multiply(const Variable& left, const Variable& right) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "Multiply");
  const auto [a, b] = Operands(left, right);
  require_alike("multiply", a.value(), b.value());
  Tensor y = Tensor::empty_like(a.value());
  y.backend().multiply(y.stream(), {a.value().view(), b.value().view(), y.view()});
  const auto backward = [](const Node& node, const Gradients& grad_outputs) {
    Gradients grads = node.gradient_buffers();
    for (std::size_t i = 0; i < 2; ++i) {
      if (!grads[i].defined()) continue;
      grads[i].backend().multiply(
          grads[i].stream(), {grad_outputs[0].view(), node.saved(1 - i).view(), grads[i].view()});
    }
    return grads;
  };
  return record("Multiply", {a, b}, std::move(y), {a.value(), b.value()}, backward);
}

Variable scale(const Variable& x, double factor) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "Scale");
  Tensor y = Tensor::empty_like(x.value());
  y.backend().scale(y.stream(), {x.value().view(), factor, y.view()});
  const auto backward = [factor](const Node& node, const Gradients& grad_outputs) {
    const Tensor grad_x = node.gradient_buffer(0);
    grad_x.backend().scale(grad_x.stream(), {grad_outputs[0].view(), factor, grad_x.view()});
    return Gradients{grad_x};
  };
  return record("Scale", {x}, std::move(y), {}, backward);
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

}  // namespace

Tensor gradient_before(Activation activation, const Tensor& saved, const Tensor& grad_y) {
  if (activation == Activation::none) return grad_y;
  const bool is_ours = grad_y.storage().use_count() == 1;  // then it may be overwritten
  Tensor grad_z = is_ours ? grad_y : Tensor::empty_like(grad_y);
  grad_z.backend().activation_backward(grad_z.stream(),
                                       {activation, saved.view(), grad_y.view(), grad_z.view()});
  return grad_z;
}

// y = f(x): grad_x = grad_y * f'. GELU keeps x, the others keep y.
Variable activate(const Variable& x, Activation activation) {
  const Tensor& input = x.value();
  if (activation == Activation::none) return x;
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, name_of(activation));
  Tensor y = Tensor::empty_like(input);
  y.backend().activation_forward(y.stream(), {activation, input.view(), y.view()});
  const auto backward = [activation](const Node& node, const Gradients& grad_outputs) {
    const Tensor grad_x = node.gradient_buffer(0);
    grad_x.backend().activation_backward(
        grad_x.stream(), {activation, node.saved(0).view(), grad_outputs[0].view(), grad_x.view()});
    return Gradients{grad_x};
  };
  return record(name_of(activation), {x}, y, {kernels::needs_preactivation(activation) ? input : y},
                backward);
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

// y = x * mask / (1 - p). The mask is a function of numbers, so backward draws it again instead of
// keeping it.
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
  Tensor y = Tensor::empty_like(x.value());
  y.backend().dropout(y.stream(), {mask, x.value().matrix(), y.matrix()});
  const auto backward = [mask](const Node& node, const Gradients& grad_outputs) {
    const Tensor grad_x = node.gradient_buffer(0);
    grad_x.backend().dropout(grad_x.stream(), {mask, grad_outputs[0].matrix(), grad_x.matrix()});
    return Gradients{grad_x};
  };
  return record("Dropout", {x}, std::move(y), {}, backward);
}

// Every element's gradient is that of y.
Variable sum(const Variable& elements) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "Sum");
  const Variable x = to(elements, arithmetic_dtype(elements.dtype()));
  Tensor y = Tensor::empty({}, x.dtype(), x.device());
  y.backend().sum(y.stream(), {x.value().view(), y.view()});
  const auto backward = [](const Node& node, const Gradients& grad_outputs) {
    const Tensor& grad_y = grad_outputs[0];
    const Tensor grad_x = node.gradient_buffer(0);
    // A matrix with one column, whose rows are all the same element.
    ConstMatrixView repeated = matrix_view(grad_y.raw(), grad_y.dtype(), grad_x.num_elements(), 1);
    repeated.leading_dimension = 0;
    grad_x.backend().copy_matrix(
        grad_x.stream(),
        {repeated, matrix_view(grad_x.raw(), grad_x.dtype(), grad_x.num_elements(), 1)});
    return Gradients{grad_x};
  };
  return record("Sum", {x}, std::move(y), {}, backward);
}

Variable mean(const Variable& x) {
  return scale(sum(x), 1.0 / static_cast<double>(x.value().num_elements()));
}

}  // namespace lockstep
