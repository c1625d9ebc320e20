#include "linear_backward.h"

#include <cstddef>
#include <span>
#include <utility>

#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "lab.h"

namespace lab {
namespace {

using lockstep::Gradients;
using lockstep::Tensor;
using lockstep::Transpose;
using lockstep::Variable;

// The matrix product of two tensors, each as it is or transposed; outside of the graph.
Tensor product(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b) {
  return lockstep::matmul(Variable(a), Variable(b), transpose_a, transpose_b).value();
}

// The backward function of one operation in the graph; node.saved() is what forward kept.
// grad_outputs[0] is dL/dy [batch, out]. Returns dL/dx [batch, in], dL/dW [out, in], dL/db [out].
Gradients linear_backward(const lockstep::Node& node, const Gradients& grad_outputs) {
  const Tensor& grad_y = grad_outputs[0];
  const Tensor& x = node.saved(0);
  const Tensor& weight = node.saved(1);
  Gradients grads(3);
  // SOLUTION begin: linear_backward: grads[0] = dL/dx, a product of grad_y and weight
  grads[0] = product(grad_y, Transpose::no, weight, Transpose::no);
  // SOLUTION end
  // SOLUTION begin: linear_backward: grads[1] = dL/dW, a product of grad_y and x
  grads[1] = product(grad_y, Transpose::yes, x, Transpose::no);
  // SOLUTION end
  grads[2] = Tensor::zeros({grad_y.size(1)}, grad_y.dtype());
  const std::span<double> grad_bias = grads[2].host<double>();
  const std::span<const double> grad = grad_y.host<const double>();
  // SOLUTION begin: linear_backward: grad_bias[j] = the sum of grad's column j over all rows
  for (std::size_t i = 0; i < grad.size(); ++i) grad_bias[i % grad_bias.size()] += grad[i];
  // SOLUTION end
  return grads;
}

}  // namespace

Variable linear(const Variable& x, const Variable& weight, const Variable& bias) {
  Tensor y = product(x.value(), Transpose::no, weight.value(), Transpose::yes);
  const std::span<double> values = y.host<double>();
  const std::span<const double> offsets = bias.value().host<const double>();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += offsets[i % offsets.size()];
  return lockstep::record("LabLinear", {x, weight, bias}, std::move(y), {x.value(), weight.value()},
                          linear_backward);
}

}  // namespace lab
