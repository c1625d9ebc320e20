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
// grad_outputs[0] is dL/dy.
Gradients linear_backward(const lockstep::Node& node, const Gradients& grad_outputs) {
  const Tensor& grad_y = grad_outputs[0];
  return {gradient_of_x(grad_y, node.saved(1)), gradient_of_weight(grad_y, node.saved(0)),
          gradient_of_bias(grad_y)};
}

}  // namespace

Tensor gradient_of_x(const Tensor& grad_y, const Tensor& weight) {
  // SOLUTION begin: gradient_of_x: return dL/dx, a product of grad_y and weight
  return product(grad_y, Transpose::no, weight, Transpose::no);
  // SOLUTION end
}

Tensor gradient_of_weight(const Tensor& grad_y, const Tensor& x) {
  // SOLUTION begin: gradient_of_weight: return dL/dW, a product of grad_y and x
  return product(grad_y, Transpose::yes, x, Transpose::no);
  // SOLUTION end
}

Tensor gradient_of_bias(const Tensor& grad_y) {
  const std::size_t rows = grad_y.size(0), columns = grad_y.size(1);
  const Tensor grad_bias = Tensor::zeros({columns}, grad_y.dtype());
  const std::span<double> sums = grad_bias.host<double>();
  const std::span<const double> grad = grad_y.host<const double>();
  // SOLUTION begin: gradient_of_bias: sums[j] = the sum of grad_y's column j over all rows
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) sums[j] += grad[i * columns + j];
  }
  // SOLUTION end
  return grad_bias;
}

Variable linear(const Variable& x, const Variable& weight, const Variable& bias) {
  Tensor y = product(x.value(), Transpose::no, weight.value(), Transpose::yes);
  const std::span<double> values = y.host<double>();
  const std::span<const double> offsets = bias.value().host<const double>();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += offsets[i % offsets.size()];
  return lockstep::record("LabLinear", {x, weight, bias}, std::move(y), {x.value(), weight.value()},
                          linear_backward);
}

}  // namespace lab
