// The differentiable operations. Each records a Node in this folder, with forward and backward
// together. All inputs of a call are on one device and share one floating dtype; else
// Error{Device} or Error{DType} names both.
//
// Mixed precision: layers with parameters make activations in activation_dtype() of their
// parameters (kernels/matmul_precision.h), which may be bfloat16, whether x is that or float32. The
// other operations make the dtype that they get; where float32 meets bfloat16, and in losses,
// bfloat16 is converted.
#pragma once

#include <string_view>

#include "engine/autograd/variable.h"
#include "kernels/calls.h"

namespace lockstep {

using kernels::Activation;
using kernels::Reduction;
using kernels::Transpose;

// --- element by element: shapes must be equal ---
Variable add(const Variable& a, const Variable& b);
Variable subtract(const Variable& a, const Variable& b);
Variable multiply(const Variable& a, const Variable& b);
Variable scale(const Variable& x, double factor);

Variable activate(const Variable& x, Activation activation);
Variable relu(const Variable& x);
Variable tanh(const Variable& x);
Variable sigmoid(const Variable& x);
// GELU: x * Phi(x) with erf (PyTorch's default), or its tanh approximation.
Variable gelu(const Variable& x, Activation form = Activation::gelu_erf);

// The gradient of z from that of y = activation(z), for nodes of layers that end with an
// activation. saved: z if needs_preactivation(activation), else y. Reuses grad_y's memory if no
// other tensor shares it.
Tensor gradient_before(Activation activation, const Tensor& saved, const Tensor& grad_y);

// --- reductions to a scalar (shape []) ---
Variable sum(const Variable& x);
Variable mean(const Variable& x);

// --- matrix products ---
// a [m, k] * b [k, n] -> [m, n], either operand transposed on request.
Variable matmul(const Variable& a, const Variable& b, Transpose transpose_a = Transpose::no,
                Transpose transpose_b = Transpose::no);
// y = activation(x * W^T + b). x [batch, in], W [out, in], b [out] or undefined -> y [batch, out].
// Source: PyTorch nn.Linear keeps W as [out, in] too.
Variable linear(const Variable& x, const Variable& weight, const Variable& bias,
                Activation activation = Activation::none);

// --- shape and place ---
Variable reshape(const Variable& x, const Shape& shape);
// The same values on another device; the gradient comes back to x's device.
Variable to(const Variable& x, Device device);
// The values rounded to another floating dtype; the gradient comes back in x's. x itself if it has
// the dtype.
Variable to(const Variable& x, DType dtype);
// x as the input of an operation with parameters of that dtype, in their activation_dtype().
// Throws Error{DType} for an x that is neither.
Variable as_activation(std::string_view operation, const Variable& x, DType parameters);

// --- losses ---
// logits [batch, classes], labels int64 [batch] -> scalar. The mean of no rows is NaN.
// Throws Error{Shape} for a label outside the classes.
// consume: the memory of the logits becomes that of their probabilities, then of their gradient. So
// only one such matrix exists, and backward can run only once. Nothing else may read the logits
// afterwards.
enum class Logits { keep, consume };
Variable cross_entropy(const Variable& logits, const Tensor& labels,
                       Reduction reduction = Reduction::mean, Logits use = Logits::keep);
// Mean (or sum) of squared differences; target has x's shape.
Variable mse_loss(const Variable& x, const Tensor& target, Reduction reduction = Reduction::mean);

// --- regularisation ---
// Zeroes elements of x [batch, ...] with probability p and scales the others by 1/(1-p). The mask
// is drawn from (seed, step, layer, global row); step and the global number of row 0 come from the
// calling thread's ThreadContext.
Variable dropout(const Variable& x, double probability, std::uint64_t seed, std::uint32_t layer);

// The rows from which a batch norm takes its statistics in training.
enum class BatchNormRows { own, all };

// Combines one replica's values with those of the others. All of them call the same methods in the
// same order. Tensors are float64 on the caller's device.
class StatisticsExchange {
 public:
  virtual ~StatisticsExchange() = default;
  virtual Tensor gather(const Tensor& mine) = 0;  // [n] -> [replicas * n], in their order
  virtual void sum(const Tensor& mine) = 0;       // in place, over all
};

// Normalises each feature of x [batch, features] over the batch, then weight * x + bias (both
// [features], or both undefined). Training uses the batch's own statistics, and adds them to the
// running ones (if defined) with `momentum`; evaluation uses the running ones.
// With `replicas`, "the batch" is the rows of all of them, in forward and backward.
// Source: PyTorch nn.BatchNorm1d, nn.SyncBatchNorm.
struct BatchNormArguments {
  Variable weight;
  Variable bias;
  Tensor running_mean;
  Tensor running_var;
  double momentum = 0.1;
  double epsilon = 1e-5;
  kernels::Statistics statistics = kernels::Statistics::batch;
  std::shared_ptr<StatisticsExchange> replicas = {};
};
Variable batch_norm(const Variable& x, const BatchNormArguments& arguments);

}  // namespace lockstep
