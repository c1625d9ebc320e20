// Matrix products.
#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "engine/core/error.h"
#include "engine/trace/span.h"

namespace lockstep {
namespace {

Transpose flipped(Transpose transpose) {
  return transpose == Transpose::no ? Transpose::yes : Transpose::no;
}

void product(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
             const Tensor& c) {
  c.backend().matmul(c.stream(), {a.matrix(), transpose_a, b.matrix(), transpose_b, c.matrix()});
}

}  // namespace

// c = op(a) * op(b). With A = op(a), B = op(b): grad_A = grad_c * B^T and grad_B = A^T * grad_c;
// the gradient of a transposed operand is transposed too: grad_a = B * grad_c^T.
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
  product(a.value(), transpose_a, b.value(), transpose_b, c);
  const auto backward = [transpose_a, transpose_b](const Node& node, const Gradients& grads_c) {
    const Tensor& grad_c = grads_c[0];
    Gradients grads = node.gradient_buffers();
    if (grads[0].defined() && transpose_a == Transpose::no) {
      product(grad_c, Transpose::no, node.saved(1), flipped(transpose_b), grads[0]);
    } else if (grads[0].defined()) {
      product(node.saved(1), transpose_b, grad_c, Transpose::yes, grads[0]);
    }
    if (grads[1].defined() && transpose_b == Transpose::no) {
      product(node.saved(0), flipped(transpose_a), grad_c, Transpose::no, grads[1]);
    } else if (grads[1].defined()) {
      product(grad_c, Transpose::yes, node.saved(0), transpose_a, grads[1]);
    }
    return grads;
  };
  return record("Matmul", {a, b}, std::move(c), {a.value(), b.value()}, backward);
}

}  // namespace lockstep
