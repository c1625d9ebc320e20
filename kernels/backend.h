// The only interface between the engine and a device: every kernel that a device must provide.
//
// Kernels see views (core) and streams (runtime), never tensors. A new device only has to implement
// this class. These rules hold for every method:
//   Memory:  views are contiguous unless a MatrixView says otherwise; outputs do not alias inputs
//            unless the method says so; outputs are overwritten unless the method says "adds".
//   Order:   work follows all earlier work of `stream`; on the CPU it runs in the calling thread,
//            spread over the threads of stream.device().
//   Types:   floating inputs and outputs of one call share one dtype, float32 or float64.
//   Empty:   zero rows or elements are valid everywhere.
//   Sizes:   REQUIRES shapes that fit and one dtype, which the operations of autograd check. Calls
//            that programs make directly (copies and element-by-element arithmetic) also check
//            them: Error{Shape}, Error{DType}.
//   Throws:  Error{DType} for a dtype the device has no kernel for.
// kernels/cpu is the reference that every other backend is tested against.
#pragma once

#include <cstdint>
#include <span>

#include "engine/core/views.h"
#include "engine/runtime/stream.h"
#include "kernels/windows.h"

namespace lockstep::kernels {

using runtime::Stream;

// Functions of one element, with which a linear layer may end.
enum class Activation { none, relu, gelu_erf, gelu_tanh, tanh, sigmoid };

// A result replaces the old values, or is added to them.
enum class Write { overwrite, accumulate };

enum class Transpose { no, yes };
enum class Reduction { mean, sum };

// True if the gradient needs the value before the activation (GELU), false if the value after it is
// enough (ReLU, tanh, sigmoid).
inline bool needs_preactivation(Activation activation) {
  return activation == Activation::gelu_erf || activation == Activation::gelu_tanh;
}

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

struct BatchNormForward {
  ConstMatrixView x;        // [batch, features]
  ConstTensorView weight;   // [features], or nullptr: ones
  ConstTensorView bias;     // [features], or nullptr: zeros
  MatrixView y;             // [batch, features]
  TensorView mean;          // [features]: of this batch (training) or given (evaluation)
  TensorView inverse_std;   // [features]: 1/sqrt(biased variance + epsilon), written
  TensorView running_mean;  // [features], or nullptr; updated with momentum when training
  TensorView running_var;   // [features], or nullptr; updated with the unbiased variance
  double momentum = 0.1;
  double epsilon = 1e-5;
  // batch: those of x. running: the running ones. shared: of the rows of several replicas, from
  // `moments`.
  enum class Statistics { batch, running, shared } statistics = Statistics::batch;
  ConstTensorView moments = {};  // shared: all replicas' moments, one after another
};

struct BatchNormBackward {
  ConstMatrixView x;       // [batch, features]
  ConstTensorView weight;  // [features], or nullptr: ones
  ConstTensorView mean;    // as the forward pass used them
  ConstTensorView inverse_std;
  ConstMatrixView grad_y;
  MatrixView grad_x;       // or nullptr
  TensorView grad_weight;  // or nullptr; overwritten
  TensorView grad_bias;    // or nullptr; overwritten
  BatchNormForward::Statistics statistics = BatchNormForward::Statistics::batch;
  TensorView sums = {};  // shared: float64 [2 * features + 1], see batch_norm_sums
};

// A convolution: linear_forward over the patches of images.
struct ConvForward {
  Windows windows;
  ConstTensorView x;       // [images, height, width, channels]
  ConstMatrixView weight;  // [out, windows.cols()]
  ConstTensorView bias;    // [out], or no data: none
  Activation activation = Activation::none;
  MatrixView y;              // [windows.rows(), out]
  MatrixView preactivation;  // as linear_forward's
  TensorView scratch;        // conv_scratch(windows) elements
};

// linear_backward over the patches; an output without data is not wanted.
struct ConvBackward {
  Windows windows;
  ConstTensorView x;
  ConstMatrixView weight;
  ConstMatrixView grad_z;  // [windows.rows(), out]
  TensorView grad_x;
  MatrixView grad_weight;
  TensorView grad_bias;
  TensorView scratch;
};

// Normalises each row over its features.
struct LayerNormForward {
  ConstMatrixView x;       // [rows, features]
  ConstTensorView weight;  // [features]
  ConstTensorView bias;    // [features]
  MatrixView y;            // [rows, features]
  TensorView mean;         // [rows], written
  TensorView inverse_std;  // [rows]: 1/sqrt(biased variance + epsilon), written
  double epsilon = 1e-5;
};

// Outputs are overwritten; one without data is not wanted.
struct LayerNormBackward {
  ConstMatrixView x;
  ConstTensorView weight;
  ConstTensorView mean;  // as the forward pass wrote them
  ConstTensorView inverse_std;
  ConstMatrixView grad_y;
  MatrixView grad_x;
  TensorView grad_weight;
  TensorView grad_bias;
};

// Causal self-attention: in each of several heads, position t of a sequence only sees positions 0
// ... t.
struct AttentionShape {
  std::size_t batch = 0;   // sequences
  std::size_t length = 0;  // positions of each
  std::size_t heads = 0;
  std::size_t head_size = 0;  // channels of a head, at most kMaxHeadSize

  std::size_t channels() const { return heads * head_size; }
  std::size_t num_rows() const { return batch * heads * length; }  // of all heads' scores
};
inline constexpr std::size_t kMaxHeadSize = 128;

// Numbers that change from step to step live in device memory, so that a captured graph stays
// correct.
struct StepScalars {
  ConstTensorView learning_rate;  // float64 [1]
  TensorView step;                // int64 [1]: 0 in the first step; the optimizer adds 1 to it
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

struct AdamWOptions {  // PyTorch torch.optim.AdamW
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // --- moving and filling ---
  // Converts if the dtypes differ, as static_cast does (core/half.h).
  virtual void copy(Stream& stream, ConstTensorView from, TensorView to) = 0;
  virtual void copy_matrix(Stream& stream, ConstMatrixView from, MatrixView to) = 0;
  virtual void fill(Stream& stream, TensorView to, double value) = 0;
  // to[i] = scale * source[indices[i]]; source uint8, float32 or float64; indices int64 [rows].
  // Throws Error{Shape} for an index outside the source.
  virtual void gather_rows(Stream& stream, ConstMatrixView source, ConstTensorView indices,
                           MatrixView to, double scale) = 0;

  // --- element by element; y may alias an input ---
  virtual void add(Stream& stream, ConstTensorView a, ConstTensorView b, TensorView y) = 0;
  virtual void multiply(Stream& stream, ConstTensorView a, ConstTensorView b, TensorView y) = 0;
  virtual void scale(Stream& stream, ConstTensorView x, double factor, TensorView y) = 0;
  // y = y + factor * x
  virtual void axpy(Stream& stream, double factor, ConstTensorView x, TensorView y) = 0;
  // y = factor * (sources[0] + sources[1] + ...), added from the left, so that every caller gets
  // the same bits; each source is multiplied by the factor before it is added. y may alias any
  // source. Also int32 and int64 (factor 1); on the CPU bfloat16 and float16 (added in float,
  // rounded once).
  virtual void ordered_sum(Stream& stream, std::span<const ConstTensorView> sources, double factor,
                           TensorView y) = 0;
  virtual void activation_forward(Stream& stream, Activation activation, ConstTensorView x,
                                  TensorView y) = 0;
  // grad_x = grad_y * activation'. `saved` is x if needs_preactivation(activation), else y.
  virtual void activation_backward(Stream& stream, Activation activation, ConstTensorView saved,
                                   ConstTensorView grad_y, TensorView grad_x) = 0;
  // The same forward and backward: y = x * mask / (1 - p). rows x cols; row r is global row
  // mask.first_row + r.
  virtual void dropout(Stream& stream, const DropoutMask& mask, ConstMatrixView x,
                       MatrixView y) = 0;

  // --- reductions; y has one element unless stated ---
  virtual void sum(Stream& stream, ConstTensorView x, TensorView y) = 0;
  virtual void argmax_rows(Stream& stream, ConstMatrixView x, TensorView y) = 0;  // int64 [rows]
  // y = sqrt(sum of all squares), accumulated in double.
  virtual void norm(Stream& stream, std::span<const ConstTensorView> x, TensorView y) = 0;

  // --- matrix products ---
  // c = op(a) * op(b), or adds it to c. batch sizes are equal, or 1 (broadcast) for a and b.
  virtual void matmul(Stream& stream, ConstMatrixView a, Transpose transpose_a, ConstMatrixView b,
                      Transpose transpose_b, MatrixView c, Write write) = 0;
  // y = activation(x * weight^T + bias). x [batch, in], weight [out, in], y [batch, out]; bias
  // [out], or no data: none. preactivation [batch, out] receives the value before the activation,
  // if it has data.
  virtual void linear_forward(Stream& stream, ConstMatrixView x, ConstMatrixView weight,
                              ConstTensorView bias, Activation activation, MatrixView y,
                              MatrixView preactivation) = 0;
  // With grad_z [batch, out] the gradient of the value before the activation:
  //   grad_x = grad_z * weight, grad_weight = grad_z^T * x, grad_bias = column sums of grad_z.
  // An output without data is not wanted.
  virtual void linear_backward(Stream& stream, ConstMatrixView x, ConstMatrixView weight,
                               ConstMatrixView grad_z, MatrixView grad_x, MatrixView grad_weight,
                               TensorView grad_bias) = 0;

  // --- images (windows.h): x [images, height, width, channels] ---
  // The elements of each window, row by row; 0 outside the image.
  virtual void patches(Stream& stream, const Windows& windows, ConstTensorView x,
                       MatrixView patches) = 0;
  // The transpose: each element of x is the sum of its copies in the patches, in the order of rows.
  virtual void fold_patches(Stream& stream, const Windows& windows, ConstMatrixView patches,
                            TensorView x) = 0;
  // The elements of scratch memory that a convolution needs: for patches of some images at a time.
  virtual std::size_t conv_scratch(const Windows& windows) const = 0;
  virtual void conv_forward(Stream& stream, const ConvForward& call) = 0;
  virtual void conv_backward(Stream& stream, const ConvBackward& call) = 0;
  // y [images, out_height, out_width, channels]. winners (maximum only): int32 [y], the place of
  // the first largest pixel in its window, y * kernel_width + x.
  virtual void pool_forward(Stream& stream, const Windows& windows, Pooling pooling,
                            ConstTensorView x, TensorView y, TensorView winners) = 0;
  virtual void pool_backward(Stream& stream, const Windows& windows, Pooling pooling,
                             ConstTensorView winners, ConstTensorView grad_y,
                             TensorView grad_x) = 0;
  // Each matrix of x is transposed; the results are one after another in y.
  virtual void transpose(Stream& stream, ConstMatrixView x, TensorView y) = 0;

  // --- sequences ---
  // y[i] = weight[tokens[i]] + positions[i % length]. tokens int64 [rows], weight [vocabulary,
  // channels], positions [length, channels], or no data: none. Throws Error{Shape} that names the
  // place of a token outside the vocabulary.
  virtual void embedding_forward(Stream& stream, ConstTensorView tokens, ConstMatrixView weight,
                                 ConstMatrixView positions, MatrixView y) = 0;
  // Each row of grad_weight (grad_positions) = the sum of the rows of grad_y whose y used it, added
  // in their order; zeros if there are none. An output without data is not wanted.
  virtual void embedding_backward(Stream& stream, ConstTensorView tokens, ConstMatrixView grad_y,
                                  MatrixView grad_weight, MatrixView grad_positions) = 0;
  // qkv [batch, length, 3 * channels] holds all heads' queries, then keys, then values; each head
  // has [length, head_size] of each. With P = softmax of the visible scores queries * keys^T /
  // sqrt(head_size): y [batch, length, channels] = P * values. Only blocks of the scores exist at a
  // time. log_sums [batch, heads, length] = log of the sum of exp(scores), for backward.
  virtual void attention_forward(Stream& stream, const AttentionShape& shape, ConstTensorView qkv,
                                 TensorView y, TensorView log_sums) = 0;
  // scratch is as large as log_sums.
  virtual void attention_backward(Stream& stream, const AttentionShape& shape, ConstTensorView qkv,
                                  ConstTensorView y, ConstTensorView log_sums,
                                  ConstTensorView grad_y, TensorView grad_qkv,
                                  TensorView scratch) = 0;
  // Row i of each matrix: p[j] = softmax over j <= i of scale * scores[j]; 0 for j > i. p may alias
  // scores. Both are contiguous.
  virtual void causal_softmax_forward(Stream& stream, ConstMatrixView scores, double scale,
                                      MatrixView p) = 0;
  // grad_scores = scale * p * (grad_p - (row sum of p * grad_p)); may alias grad_p.
  virtual void causal_softmax_backward(Stream& stream, ConstMatrixView p, ConstMatrixView grad_p,
                                       double scale, MatrixView grad_scores) = 0;

  // --- losses ---
  // loss[0] = mean or sum over rows of -log softmax(logits)[label]; labels int64 [rows];
  // probabilities [rows, classes] receives softmax(logits), for the backward pass. The mean of no
  // rows is NaN, as in PyTorch. probabilities may alias logits. Throws Error{Shape} for a label
  // outside 0 ... classes - 1.
  virtual void softmax_cross_entropy_forward(Stream& stream, ConstMatrixView logits,
                                             ConstTensorView labels, Reduction reduction,
                                             MatrixView probabilities, TensorView loss) = 0;
  // grad_logits = (probabilities - onehot(labels)) * grad_loss[0] (/ rows for mean). May alias
  // probabilities.
  virtual void softmax_cross_entropy_backward(Stream& stream, ConstMatrixView probabilities,
                                              ConstTensorView labels, Reduction reduction,
                                              ConstTensorView grad_loss,
                                              MatrixView grad_logits) = 0;
  // loss[0] = mean or sum of (x - target)^2.
  virtual void mse_forward(Stream& stream, ConstTensorView x, ConstTensorView target,
                           Reduction reduction, TensorView loss) = 0;
  // grad_x = 2 (x - target) * grad_loss[0] (/ elements for mean).
  virtual void mse_backward(Stream& stream, ConstTensorView x, ConstTensorView target,
                            Reduction reduction, ConstTensorView grad_loss, TensorView grad_x) = 0;

  // --- normalisation ---
  virtual void layer_norm_forward(Stream& stream, const LayerNormForward& call) = 0;
  virtual void layer_norm_backward(Stream& stream, const LayerNormBackward& call) = 0;
  virtual void batch_norm_forward(Stream& stream, const BatchNormForward& call) = 0;
  virtual void batch_norm_backward(Stream& stream, const BatchNormBackward& call) = 0;
  // For replicas that share their statistics: moments float64 [2 * features + 1] = each feature's
  // mean, each feature's sum of squared deviations from it, and the number of rows.
  virtual void batch_moments(Stream& stream, ConstMatrixView x, TensorView moments) = 0;
  // call.sums = each feature's sum of grad_y, then of grad_y * x^ with x^ = (x - mean) *
  // inverse_std, and the number of rows; also writes grad_weight and grad_bias. With the sums over
  // all replicas, batch_norm_backward then only writes grad_x.
  virtual void batch_norm_sums(Stream& stream, const BatchNormBackward& call) = 0;

  // --- many tensors in one call; sgd and adamw read scalars.step, then add 1 to it ---
  virtual void sgd(Stream& stream, std::span<const OptimizerParameter> parameters,
                   const StepScalars& scalars, const SgdOptions& options) = 0;
  virtual void adamw(Stream& stream, std::span<const OptimizerParameter> parameters,
                     const StepScalars& scalars, const AdamWOptions& options) = 0;
  // Multiplies each tensor by max_norm / (norm[0] + 1e-6), unless that is 1 or more; norm float64
  // [1]. So the norm need not come to the host.
  virtual void clip(Stream& stream, std::span<const TensorView> tensors, ConstTensorView norm,
                    double max_norm) = 0;
};

// The backend of a device type. Throws Error{Device} if this build has none.
Backend& backend(DeviceType type);

// Replaces a type's backend, for example by a decorator of it; nullptr restores the original.
// REQUIRES: no kernel runs on such devices meanwhile; the backend outlives its use.
void set_backend(DeviceType type, Backend* backend);

// The CUDA backend, or nullptr in a build without CUDA: CMake links cuda/ or no_cuda.cpp.
Backend* cuda_backend();

}  // namespace lockstep::kernels
