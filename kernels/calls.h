// The calls of the kernels that every training step needs: copies, arithmetic, matrix products,
// losses and optimizers. backend.h has the rules that hold for all of them.
//
// A call describes itself to whoever watches or paces kernels: f(name, views...) with the views
// that it reads (of const memory) and writes (any other).
#pragma once

#include <cstdint>
#include <span>

#include "engine/core/views.h"
#include "kernels/backend.h"

namespace lockstep::kernels {

// Views that a call writes, as it describes them.
struct Outputs {
  std::span<const TensorView> views;
};

// --- moving and filling ---

// Converts if the dtypes differ, as static_cast does (core/half.h).
struct Copy {
  ConstTensorView from;
  TensorView to;
  auto describe(auto f) const { return f(from.dtype == to.dtype ? "copy" : "convert", from, to); }
};

struct CopyMatrix {
  ConstMatrixView from;
  MatrixView to;
  auto describe(auto f) const { return f("copy_matrix", from, to); }
};

struct Fill {
  TensorView to;
  double value = 0;
  auto describe(auto f) const { return f("fill", to); }
};

// to[i] = scale * source[indices[i]]. Throws Error{Shape} for an index outside the source.
struct GatherRows {
  ConstMatrixView source;   // uint8, float32 or float64
  ConstTensorView indices;  // int64 [rows]
  MatrixView to;
  double scale = 1;
  auto describe(auto f) const { return f("gather_rows", source, indices, to); }
};

// --- element by element; y may alias an input ---

struct Add {  // y = a + b
  ConstTensorView a, b;
  TensorView y;
  auto describe(auto f) const { return f("add", a, b, y); }
};

struct Multiply {  // y = a * b
  ConstTensorView a, b;
  TensorView y;
  auto describe(auto f) const { return f("multiply", a, b, y); }
};

struct Scale {  // y = factor * x
  ConstTensorView x;
  double factor = 1;
  TensorView y;
  auto describe(auto f) const { return f("scale", x, y); }
};

struct Axpy {  // y = y + factor * x
  double factor = 1;
  ConstTensorView x;
  TensorView y;
  auto describe(auto f) const { return f("axpy", x, ConstTensorView(y), y); }
};

// y = sources[0] op sources[1] op ..., from the left, so that every caller gets the same bits; each
// source is multiplied by the factor before. average is a sum: its caller's factor makes the
// difference. min and max keep a NaN. Every copy gets the result, too; y and the copies may alias
// any source. On CUDA the stream's GPU must reach all of this memory, and there are at most
// kMostReduced sources, and as many outputs.
// Also bfloat16, float16 (combined in float, rounded once); int32, int64 (factor 1; sums and
// products wrap around).
struct OrderedReduce {
  std::span<const ConstTensorView> sources;
  double factor = 1;
  TensorView y;
  ReduceOp op = ReduceOp::sum;
  std::span<const TensorView> copies = {};
  auto describe(auto f) const { return f("sum", sources, y, Outputs{copies}); }
};
inline constexpr std::size_t kMostReduced = 64;

// --- reductions; y has one element unless stated ---

struct Sum {
  ConstTensorView x;
  TensorView y;
  auto describe(auto f) const { return f("sum", x, y); }
};

struct Norm {  // y = sqrt(sum of all squares), accumulated in double
  std::span<const ConstTensorView> x;
  TensorView y;
  auto describe(auto f) const { return f("norm", x, y); }
};

struct ArgmaxRows {
  ConstMatrixView x;
  TensorView y;  // int64 [rows]
  auto describe(auto f) const { return f("argmax_rows", x, y); }
};

// --- linear layers ---

// Functions of one element, with which a linear layer may end.
enum class Activation { none, relu, gelu_erf, gelu_tanh, tanh, sigmoid };

// True if the gradient needs the value before the activation (GELU), false if the value after it is
// enough (ReLU, tanh, sigmoid).
inline bool needs_preactivation(Activation activation) {
  return activation == Activation::gelu_erf || activation == Activation::gelu_tanh;
}

struct ActivationForward {
  Activation activation = Activation::none;
  ConstTensorView x;
  TensorView y;  // may alias x
  auto describe(auto f) const { return f("activation", x, y); }
};

struct ActivationBackward {  // grad_x = grad_y * activation'
  Activation activation = Activation::none;
  ConstTensorView saved;  // x if needs_preactivation(activation), else y
  ConstTensorView grad_y;
  TensorView grad_x;  // may alias grad_y
  auto describe(auto f) const { return f("activation backward", saved, grad_y, grad_x); }
};

enum class Transpose { no, yes };

// A result replaces the old values, or is added to them.
enum class Write { overwrite, accumulate };

// c = op(a) * op(b), or adds it to c. Batch sizes are equal, or 1 (broadcast) for a and b.
struct Matmul {
  ConstMatrixView a;
  Transpose transpose_a = Transpose::no;
  ConstMatrixView b;
  Transpose transpose_b = Transpose::no;
  MatrixView c;
  Write write = Write::overwrite;
  auto describe(auto f) const { return f("matmul", a, b, c); }
};

// y = activation(x * weight^T + bias)
struct LinearForward {
  ConstMatrixView x;       // [batch, in]
  ConstMatrixView weight;  // [out, in]
  ConstTensorView bias;    // [out], or no data; rounded to y's dtype before it is added
  Activation activation = Activation::none;
  MatrixView y;              // [batch, out]
  MatrixView preactivation;  // [batch, out]: the value before the activation
  auto describe(auto f) const { return f("linear", x, weight, bias, y, preactivation); }
};

// grad_x = grad_z * weight, grad_weight = grad_z^T * x, grad_bias = column sums of grad_z.
struct LinearBackward {
  ConstMatrixView x, weight;
  ConstMatrixView grad_z;  // [batch, out]: of the value before the activation
  MatrixView grad_x, grad_weight;
  TensorView grad_bias;
  auto describe(auto f) const {
    return f("linear backward", x, weight, grad_z, grad_x, grad_weight, grad_bias);
  }
};

// The key of a dropout call's random values: Philox keyed by (seed, step, layer, global row), so
// that any sharding of a batch draws the same mask.
struct DropoutMask {
  double probability = 0.5;  // of dropping an element; kept ones are multiplied by 1/(1-p)
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint32_t layer = 0;
  std::uint64_t first_row = 0;  // global number of row 0 of this shard
  // int64 [1] in the device's memory, which replaces `step` if it has data: a captured graph must
  // draw differently at each launch.
  ConstTensorView step_on_device{};
};

// The same forward and backward: y = x * mask / (1 - p). Row r is global row mask.first_row + r.
struct Dropout {
  DropoutMask mask;
  ConstMatrixView x;
  MatrixView y;  // may alias x
  auto describe(auto f) const { return f("dropout", x, y); }
};

// The statistics that a batch norm uses. batch: those of its input. running: the running ones.
// shared: of the rows of several replicas.
enum class Statistics { batch, running, shared };

// --- losses ---

enum class Reduction { mean, sum };

// loss[0] = mean or sum over rows of -log softmax(logits)[label]. The mean of no rows is NaN, as in
// PyTorch. Throws Error{Shape} for a label outside 0 ... classes - 1.
struct SoftmaxCrossEntropyForward {
  ConstMatrixView logits;  // [rows, classes]
  ConstTensorView labels;  // int64 [rows]
  Reduction reduction = Reduction::mean;
  MatrixView probabilities;  // softmax(logits), of bfloat16 less onehot(labels); may alias logits
  TensorView loss;
  auto describe(auto f) const { return f("cross entropy", logits, labels, probabilities, loss); }
};

// grad_logits = (probabilities - onehot(labels)) * grad_loss[0] (/ rows for mean).
struct SoftmaxCrossEntropyBackward {
  ConstMatrixView probabilities;
  ConstTensorView labels;
  Reduction reduction = Reduction::mean;
  ConstTensorView grad_loss;
  MatrixView grad_logits;  // may alias probabilities
  auto describe(auto f) const {
    return f("cross entropy backward", probabilities, grad_loss, grad_logits);
  }
};

struct MseForward {  // loss[0] = mean or sum of (x - target)^2
  ConstTensorView x, target;
  Reduction reduction = Reduction::mean;
  TensorView loss;
  auto describe(auto f) const { return f("mse", x, target, loss); }
};

struct MseBackward {  // grad_x = 2 (x - target) * grad_loss[0] (/ elements for mean)
  ConstTensorView x, target;
  Reduction reduction = Reduction::mean;
  ConstTensorView grad_loss;
  TensorView grad_x;
  auto describe(auto f) const { return f("mse backward", x, target, grad_loss, grad_x); }
};

// --- optimizers: many tensors in one call ---

// Numbers that change from step to step live in device memory, so that a captured graph stays
// correct.
struct StepScalars {
  ConstTensorView learning_rate;  // float64 [1]
  TensorView step;  // int64 [1]: 0 in the first step; the kernel reads it, then adds 1
};

// A parameter of an optimizer's step, with the optimizer's state for it, which is zero before its
// first step.
struct OptimizerParameter {
  TensorView weight;
  ConstTensorView grad;
  TensorView first;   // SGD: momentum, unless options.momentum == 0; AdamW: first moment
  TensorView second;  // AdamW: second moment
};

struct SgdOptions {  // PyTorch torch.optim.SGD
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  enum class Kind { plain, nesterov } kind = Kind::plain;
};

struct Sgd {
  std::span<const OptimizerParameter> parameters;
  StepScalars scalars;
  SgdOptions options;
  auto describe(auto f) const { return f("sgd", parameters); }
};

struct AdamWOptions {  // PyTorch torch.optim.AdamW
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
};

struct AdamW {
  std::span<const OptimizerParameter> parameters;
  StepScalars scalars;
  AdamWOptions options;
  auto describe(auto f) const { return f("adamw", parameters); }
};

// Multiplies each tensor by max_norm / (norm[0] + 1e-6), unless that is 1 or more. So the norm need
// not come to the host.
struct Clip {
  std::span<const TensorView> tensors;
  ConstTensorView norm;  // float64 [1]
  double max_norm = 0;
  auto describe(auto f) const { return f("clip", tensors, norm); }
};

}  // namespace lockstep::kernels
