// Matrix products: matmul, and the linear layer with its activation.
#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "engine/core/error.h"
#include "engine/trace/span.h"

namespace lockstep {
namespace {

using kernels::Write;

// y = f(z), z = x * W^T + b:
//   grad_z = grad_y * f'     [batch, out]
//   grad_x = grad_z * W      [batch, in]
//   grad_W = grad_z^T * x    [out, in]
//   grad_b = column sums of grad_z
class LinearNode final : public Node {
 public:
  LinearNode(Tensor x, Tensor weight, Activation activation, Tensor activated)
      : x_(std::move(x)),
        weight_(std::move(weight)),
        activation_(activation),
        activated_(std::move(activated)) {}
  const char* name() const override { return "Linear"; }
  Gradients backward(const Gradients& grad_outputs) override {
    const Tensor grad_z = gradient_before(activation_, unpack(activated_), grad_outputs[0]);
    Gradients grads = gradient_buffers();
    // Only values that enter a wanted gradient must be unchanged: the weight of a first layer may
    // change.
    const Tensor& x = grads[1].defined() ? unpack(x_) : x_.unchecked();
    const Tensor& weight = grads[0].defined() ? unpack(weight_) : weight_.unchecked();
    grad_z.backend().linear_backward(grad_z.stream(), x.matrix(), weight.matrix(), grad_z.matrix(),
                                     grads[0].defined() ? grads[0].matrix() : MatrixView{},
                                     grads[1].defined() ? grads[1].matrix() : MatrixView{},
                                     grads[2].defined() ? grads[2].view() : TensorView{});
    return grads;
  }
  void release_saved() override { x_ = weight_ = activated_ = {}; }

 private:
  SavedTensor x_;
  SavedTensor weight_;
  Activation activation_;
  SavedTensor activated_;  // z if needs_preactivation(), else y; may be undefined
};

}  // namespace

Variable linear(const Variable& x, const Variable& weight, const Variable& bias,
                Activation activation) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "Linear");
  const Tensor& input = x.value();
  const Tensor& w = weight.value();
  const Tensor b = bias.defined() ? bias.value() : Tensor();
  require_same_device("linear", {&input, &w, &b});
  require_same_dtype("linear", {&input, &w, &b});
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
    activated = Tensor::empty(y.shape(), y.dtype(), y.device());
    preactivation = activated.matrix();
  } else if (activation != Activation::none) {
    activated = y;
  }
  y.backend().linear_forward(y.stream(), input.matrix(), w.matrix(),
                             b.defined() ? b.view() : TensorView{}, activation, y.matrix(),
                             preactivation);
  return record<LinearNode>({x, weight, bias}, std::move(y), input, w, activation,
                            std::move(activated));
}

namespace {

Transpose flipped(Transpose transpose) {
  return transpose == Transpose::no ? Transpose::yes : Transpose::no;
}

// c = op(a) * op(b). With A = op(a), B = op(b): grad_A = grad_c * B^T and grad_B = A^T * grad_c;
// the gradient of a transposed operand is transposed too: grad_a = B * grad_c^T.
class MatmulNode final : public Node {
 public:
  MatmulNode(Tensor a, Transpose transpose_a, Tensor b, Transpose transpose_b)
      : a_(std::move(a)), b_(std::move(b)), transpose_a_(transpose_a), transpose_b_(transpose_b) {}
  const char* name() const override { return "Matmul"; }

  Gradients backward(const Gradients& grad_outputs) override {
    const Tensor& grad_c = grad_outputs[0];
    Tensor grad_a;
    Tensor grad_b;
    if (wants_gradient(0)) {
      grad_a = gradient_buffer(0);
      if (transpose_a_ == Transpose::no) {
        product(grad_c, Transpose::no, unpack(b_), flipped(transpose_b_), grad_a);
      } else {
        product(unpack(b_), transpose_b_, grad_c, Transpose::yes, grad_a);
      }
    }
    if (wants_gradient(1)) {
      grad_b = gradient_buffer(1);
      if (transpose_b_ == Transpose::no) {
        product(unpack(a_), flipped(transpose_a_), grad_c, Transpose::no, grad_b);
      } else {
        product(grad_c, Transpose::yes, unpack(a_), transpose_a_, grad_b);
      }
    }
    return {grad_a, grad_b};
  }
  void release_saved() override { a_ = b_ = {}; }

 private:
  static void product(const Tensor& a, Transpose transpose_a, const Tensor& b,
                      Transpose transpose_b, const Tensor& c) {
    c.backend().matmul(c.stream(), a.matrix(), transpose_a, b.matrix(), transpose_b, c.matrix(),
                       Write::overwrite);
  }

  SavedTensor a_;
  SavedTensor b_;
  Transpose transpose_a_;
  Transpose transpose_b_;
};

}  // namespace

Variable matmul(const Variable& a, const Variable& b, Transpose transpose_a,
                Transpose transpose_b) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "Matmul");
  require_same_device("matmul", {&a.value(), &b.value()});
  require_same_dtype("matmul", {&a.value(), &b.value()});
  if (a.value().num_dims() != 2 || b.value().num_dims() != 2) {
    fail(ErrorCode::Shape, "matmul", "needs two matrices, found shapes {} and {}",
         to_string(a.shape()), to_string(b.shape()));
  }
  const bool flip_a = transpose_a == Transpose::yes;
  const bool flip_b = transpose_b == Transpose::yes;
  const std::size_t m = a.shape()[flip_a ? 1 : 0];
  const std::size_t k = a.shape()[flip_a ? 0 : 1];
  const std::size_t n = b.shape()[flip_b ? 0 : 1];
  if (b.shape()[flip_b ? 1 : 0] != k) {
    fail(ErrorCode::Shape, "matmul", "inner sizes differ: {}{} times {}{}", to_string(a.shape()),
         flip_a ? "^T" : "", to_string(b.shape()), flip_b ? "^T" : "");
  }
  Tensor c = Tensor::empty({m, n}, a.dtype(), a.device());
  c.backend().matmul(c.stream(), a.value().matrix(), transpose_a, b.value().matrix(), transpose_b,
                     c.matrix(), Write::overwrite);
  return record<MatmulNode>({a, b}, std::move(c), a.value(), transpose_a, b.value(), transpose_b);
}

}  // namespace lockstep
