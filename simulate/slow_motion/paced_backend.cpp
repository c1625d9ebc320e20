#include "simulate/slow_motion/paced_backend.h"

#include <vector>

#include "engine/runtime/logical_device.h"

namespace lockstep::slow_motion {
namespace {

using Memories = std::vector<Memory>;

Memory memory(const ConstTensorView& view) {
  return {view.data, view.num_bytes()};
}

// The view's memory from its first to its last element; for some of the columns, with everything in
// between.
Memory memory(const ConstMatrixView& view) {
  if (view.data == nullptr || view.num_elements() == 0) return {};
  const std::size_t last =
      (view.batch - 1) * view.batch_stride + (view.rows - 1) * view.leading_dimension + view.cols;
  return {view.data, last * size_of(view.dtype)};
}

double num_bytes(const Memories& memories) {
  std::size_t total = 0;
  for (const Memory& memory : memories) total += memory.num_bytes;
  return static_cast<double>(total);
}

// The memory that a kernel reads and writes. The types of its arguments tell: it reads a view of
// const memory and writes any other; a list that is not const is changed in place.
struct Accesses {
  Memories reads;
  Memories writes;

  double num_bytes() const {
    return slow_motion::num_bytes(reads) + slow_motion::num_bytes(writes);
  }

  void add(const ConstTensorView& view) { reads.push_back(memory(view)); }
  void add(const ConstMatrixView& view) { reads.push_back(memory(view)); }
  void add(const TensorView& view) { writes.push_back(memory(view)); }
  void add(const MatrixView& view) { writes.push_back(memory(view)); }
  void add(std::span<const ConstTensorView> views) {
    for (const ConstTensorView& view : views) add(view);
  }
  void add(std::span<const TensorView> views) {
    for (const TensorView& view : views) {
      add(ConstTensorView(view));
      add(view);
    }
  }
  template <typename Other>
  void add(const Other&) {}  // a number, or a word
};

template <typename... Arguments>
Accesses accesses_of(const Arguments&... arguments) {
  Accesses accesses;
  (accesses.add(arguments), ...);
  return accesses;
}

const predict::DeviceProfile& profile() {
  return machine()->topology().device;
}

int index_of(Stream& stream) {
  return stream.device().device().index;
}

// Runs a kernel for seconds(), which is called if there is a machine, or before a listener.
template <typename Seconds, typename Real>
void pace_kernel(Stream& stream, const char* name, const Accesses& accesses,
                 const KernelSizes& sizes, const Seconds& seconds, const Real& real,
                 Kernel::Kind kind = Kernel::Kind::computes) {
  if (KernelListener* const listener = detail::listener.load(std::memory_order_acquire)) {
    real();
    return listener->on_kernel(stream, sizes);
  }
  machine()->run(index_of(stream), {name, seconds(), kind, accesses.reads, accesses.writes}, real);
}

template <typename Seconds, typename Real>
void pace_seconds(Stream& stream, const char* name, const Accesses& accesses,
                  const Seconds& seconds, const Real& real) {
  pace_kernel(stream, name, accesses, {accesses.reads, accesses.writes}, seconds, real);
}

// A kernel that takes as long as so many bytes of memory traffic.
template <typename Real>
void pace_bytes(Stream& stream, const char* name, const Accesses& accesses, double bytes,
                const Real& real, Kernel::Kind kind = Kernel::Kind::computes) {
  const auto seconds = [&] { return predict::traffic_seconds(profile(), bytes); };
  pace_kernel(stream, name, accesses, {accesses.reads, accesses.writes, {}, bytes}, seconds, real,
              kind);
}

// A kernel that takes as long as the traffic of all that it reads and writes.
template <typename Real>
void pace(Stream& stream, const char* name, const Accesses& accesses, const Real& real,
          Kernel::Kind kind = Kernel::Kind::computes) {
  pace_bytes(stream, name, accesses, accesses.num_bytes(), real, kind);
}

// outputs: rows of a layer's results, or their gradients.
template <typename View>
predict::LayerShape layer_of(std::size_t rows, std::size_t inputs, const View& outputs) {
  return {static_cast<double>(rows), static_cast<double>(inputs), static_cast<double>(outputs.cols),
          size_of(outputs.dtype)};
}

// Rows are the pixels of a convolution's images.
template <typename View>
predict::LayerShape layer_of(const Windows& windows, const ConstTensorView& images,
                             const View& outputs) {
  predict::LayerShape layer = layer_of(windows.rows(), windows.cols(), outputs);
  layer.image_bytes = num_bytes({memory(images), memory(outputs)});
  return layer;
}

// A layer's products: forward, or backward for the weights' gradient and perhaps the input's.
struct LayerCall {
  predict::LayerShape shape;
  std::optional<predict::InputGradient> backward = {};
  std::size_t scratch_bytes = 0;
  double times = 1;  // so many of them
};

predict::InputGradient backward_for(const void* grad_x, const void* grad_weight) {
  const bool needs_both = grad_x != nullptr && grad_weight != nullptr;
  return needs_both ? predict::InputGradient::needed : predict::InputGradient::not_needed;
}

template <typename Real>
void pace_layer(Stream& stream, const char* name, const Accesses& accesses, const LayerCall& call,
                const Real& real) {
  const auto seconds = [&] {
    const double alone = call.backward
                             ? predict::backward_seconds(profile(), call.shape, *call.backward)
                             : predict::forward_seconds(profile(), call.shape);
    return call.times * alone;
  };
  pace_kernel(stream, name, accesses,
              {accesses.reads, accesses.writes, call.shape, 0, call.scratch_bytes}, seconds, real);
}

// Labels and row numbers belong to a batch, which is there when it is needed. A single number, such
// as a loss, is for the host, and does not keep a GPU waiting.
bool is_free(const TensorView& to) {
  return to.dtype == DType::int64 || to.num_elements <= 1;
}

// Two products of every query with the keys that it sees: half of all keys.
predict::LayerShape products_of(const AttentionShape& shape, DType dtype) {
  return {static_cast<double>(shape.batch * shape.length), static_cast<double>(shape.length),
          static_cast<double>(shape.channels()), size_of(dtype)};
}

// An optimizer's kernel, over all parameters at once.
template <typename Real>
void pace_update(Stream& stream, const char* name, std::span<const OptimizerParameter> parameters,
                 const Real& real) {
  Accesses accesses;
  for (const OptimizerParameter& parameter : parameters) {
    accesses.add(parameter.grad);
    accesses.add(parameter.weight);
  }
  const double bytes = num_bytes(accesses.writes);
  const auto seconds = [&] { return predict::update_seconds(profile(), bytes); };
  pace_seconds(stream, name, accesses, seconds, real);
}

}  // namespace

template <typename... Parameters, typename... Arguments>
void PacedBackend::run(const char* name, void (Backend::*kernel)(Stream&, Parameters...),
                       Stream& stream, const Arguments&... arguments) {
  pace(stream, name, accesses_of(arguments...), [&] { (inner_.*kernel)(stream, arguments...); });
}

// --- kernels that take as long as their memory traffic

void PacedBackend::copy(Stream& stream, ConstTensorView from, TensorView to) {
  const bool converts = from.dtype != to.dtype;
  if (is_free(to)) {
    inner_.copy(stream, from, to);
    if (!converts && machine()) machine()->give(index_of(stream), memory(to));
    return;
  }
  pace(
      stream, converts ? "convert" : "copy", accesses_of(from, to),
      [&] { inner_.copy(stream, from, to); },
      converts ? Kernel::Kind::computes : Kernel::Kind::copies);
}

void PacedBackend::copy_matrix(Stream& stream, ConstMatrixView from, MatrixView to) {
  pace(
      stream, "copy_matrix", accesses_of(from, to), [&] { inner_.copy_matrix(stream, from, to); },
      Kernel::Kind::copies);
}

void PacedBackend::fill(Stream& stream, TensorView to, double value) {
  run("fill", &Backend::fill, stream, to, value);
}

void PacedBackend::gather_rows(Stream& stream, ConstMatrixView source, ConstTensorView indices,
                               MatrixView to, double scale) {
  inner_.gather_rows(stream, source, indices, to, scale);
  if (machine()) machine()->give(index_of(stream), memory(to));
}

void PacedBackend::add(Stream& stream, ConstTensorView a, ConstTensorView b, TensorView y) {
  run("add", &Backend::add, stream, a, b, y);
}

void PacedBackend::multiply(Stream& stream, ConstTensorView a, ConstTensorView b, TensorView y) {
  run("multiply", &Backend::multiply, stream, a, b, y);
}

void PacedBackend::scale(Stream& stream, ConstTensorView x, double factor, TensorView y) {
  run("scale", &Backend::scale, stream, x, factor, y);
}

void PacedBackend::axpy(Stream& stream, double factor, ConstTensorView x, TensorView y) {
  pace(stream, "axpy", accesses_of(x, ConstTensorView(y), y),
       [&] { inner_.axpy(stream, factor, x, y); });
}

void PacedBackend::ordered_sum(Stream& stream, std::span<const ConstTensorView> sources,
                               double factor, TensorView y) {
  Machine::Collective::add_bytes(static_cast<double>((sources.size() - 1) * y.num_bytes()));
  run("sum", &Backend::ordered_sum, stream, sources, factor, y);
}

void PacedBackend::activation_forward(Stream& stream, Activation activation, ConstTensorView x,
                                      TensorView y) {
  run("activation", &Backend::activation_forward, stream, activation, x, y);
}

// The predictor counts an activation's gradient as part of the layer's products.
void PacedBackend::activation_backward(Stream& stream, Activation activation, ConstTensorView saved,
                                       ConstTensorView grad_y, TensorView grad_x) {
  pace_seconds(
      stream, "activation backward", accesses_of(saved, grad_y, grad_x), [] { return 0.0; },
      [&] { inner_.activation_backward(stream, activation, saved, grad_y, grad_x); });
}

void PacedBackend::dropout(Stream& stream, const DropoutMask& mask, ConstMatrixView x,
                           MatrixView y) {
  run("dropout", &Backend::dropout, stream, mask, x, y);
}

void PacedBackend::sum(Stream& stream, ConstTensorView x, TensorView y) {
  run("sum", &Backend::sum, stream, x, y);
}

void PacedBackend::argmax_rows(Stream& stream, ConstMatrixView x, TensorView y) {
  run("argmax_rows", &Backend::argmax_rows, stream, x, y);
}

void PacedBackend::norm(Stream& stream, std::span<const ConstTensorView> x, TensorView y) {
  run("norm", &Backend::norm, stream, x, y);
}

void PacedBackend::patches(Stream& stream, const Windows& windows, ConstTensorView x,
                           MatrixView patches) {
  run("patches", &Backend::patches, stream, windows, x, patches);
}

void PacedBackend::fold_patches(Stream& stream, const Windows& windows, ConstMatrixView patches,
                                TensorView x) {
  run("patches backward", &Backend::fold_patches, stream, windows, patches, x);
}

void PacedBackend::pool_forward(Stream& stream, const Windows& windows, Pooling pooling,
                                ConstTensorView x, TensorView y, TensorView winners) {
  run("pool", &Backend::pool_forward, stream, windows, pooling, x, y, winners);
}

void PacedBackend::pool_backward(Stream& stream, const Windows& windows, Pooling pooling,
                                 ConstTensorView winners, ConstTensorView grad_y,
                                 TensorView grad_x) {
  run("pool backward", &Backend::pool_backward, stream, windows, pooling, winners, grad_y, grad_x);
}

void PacedBackend::transpose(Stream& stream, ConstMatrixView x, TensorView y) {
  run("transpose", &Backend::transpose, stream, x, y);
}

// It reads as much of the weight as it writes.
void PacedBackend::embedding_forward(Stream& stream, ConstTensorView tokens, ConstMatrixView weight,
                                     ConstMatrixView positions, MatrixView y) {
  const Accesses accesses = accesses_of(tokens, weight, positions, y);
  pace_bytes(stream, "embedding", accesses, 2 * num_bytes(accesses.writes),
             [&] { inner_.embedding_forward(stream, tokens, weight, positions, y); });
}

void PacedBackend::embedding_backward(Stream& stream, ConstTensorView tokens,
                                      ConstMatrixView grad_y, MatrixView grad_weight,
                                      MatrixView grad_positions) {
  run("embedding backward", &Backend::embedding_backward, stream, tokens, grad_y, grad_weight,
      grad_positions);
}

void PacedBackend::causal_softmax_forward(Stream& stream, ConstMatrixView scores, double scale,
                                          MatrixView p) {
  run("causal softmax", &Backend::causal_softmax_forward, stream, scores, scale, p);
}

void PacedBackend::causal_softmax_backward(Stream& stream, ConstMatrixView p,
                                           ConstMatrixView grad_p, double scale,
                                           MatrixView grad_scores) {
  run("causal softmax backward", &Backend::causal_softmax_backward, stream, p, grad_p, scale,
      grad_scores);
}

void PacedBackend::mse_forward(Stream& stream, ConstTensorView x, ConstTensorView target,
                               Reduction reduction, TensorView loss) {
  run("mse", &Backend::mse_forward, stream, x, target, reduction, loss);
}

void PacedBackend::mse_backward(Stream& stream, ConstTensorView x, ConstTensorView target,
                                Reduction reduction, ConstTensorView grad_loss, TensorView grad_x) {
  run("mse backward", &Backend::mse_backward, stream, x, target, reduction, grad_loss, grad_x);
}

void PacedBackend::layer_norm_forward(Stream& stream, const LayerNormForward& call) {
  pace(stream, "layer norm",
       accesses_of(call.x, call.weight, call.bias, call.y, call.mean, call.inverse_std),
       [&] { inner_.layer_norm_forward(stream, call); });
}

void PacedBackend::layer_norm_backward(Stream& stream, const LayerNormBackward& call) {
  pace(stream, "layer norm backward",
       accesses_of(call.x, call.weight, call.mean, call.inverse_std, call.grad_y, call.grad_x,
                   call.grad_weight, call.grad_bias),
       [&] { inner_.layer_norm_backward(stream, call); });
}

void PacedBackend::batch_norm_forward(Stream& stream, const BatchNormForward& call) {
  pace(stream, "batch norm",
       accesses_of(call.x, call.weight, call.bias, call.y, call.mean, call.inverse_std,
                   call.running_mean, call.running_var),
       [&] { inner_.batch_norm_forward(stream, call); });
}

void PacedBackend::batch_norm_backward(Stream& stream, const BatchNormBackward& call) {
  pace(stream, "batch norm backward",
       accesses_of(call.x, call.weight, call.mean, call.inverse_std, call.grad_y, call.grad_x,
                   call.grad_weight, call.grad_bias),
       [&] { inner_.batch_norm_backward(stream, call); });
}

void PacedBackend::batch_moments(Stream& stream, ConstMatrixView x, TensorView moments) {
  run("batch moments", &Backend::batch_moments, stream, x, moments);
}

void PacedBackend::batch_norm_sums(Stream& stream, const BatchNormBackward& call) {
  pace(stream, "batch norm sums",
       accesses_of(call.x, call.mean, call.inverse_std, call.grad_y, call.grad_weight,
                   call.grad_bias, call.sums),
       [&] { inner_.batch_norm_sums(stream, call); });
}

void PacedBackend::clip(Stream& stream, std::span<const TensorView> tensors, ConstTensorView norm,
                        double max_norm) {
  run("clip", &Backend::clip, stream, tensors, norm, max_norm);
}

// --- kernels that the predictor has a price for

void PacedBackend::matmul(Stream& stream, ConstMatrixView a, Transpose transpose_a,
                          ConstMatrixView b, Transpose transpose_b, MatrixView c, Write write) {
  const std::size_t inner_size = transpose_a == Transpose::yes ? a.rows : a.cols;
  pace_layer(stream, "matmul", accesses_of(a, b, c), {layer_of(c.batch * c.rows, inner_size, c)},
             [&] { inner_.matmul(stream, a, transpose_a, b, transpose_b, c, write); });
}

void PacedBackend::linear_forward(Stream& stream, ConstMatrixView x, ConstMatrixView weight,
                                  ConstTensorView bias, Activation activation, MatrixView y,
                                  MatrixView preactivation) {
  pace_layer(stream, "linear", accesses_of(x, weight, bias, y, preactivation),
             {layer_of(x.rows, x.cols, y)},
             [&] { inner_.linear_forward(stream, x, weight, bias, activation, y, preactivation); });
}

void PacedBackend::linear_backward(Stream& stream, ConstMatrixView x, ConstMatrixView weight,
                                   ConstMatrixView grad_z, MatrixView grad_x,
                                   MatrixView grad_weight, TensorView grad_bias) {
  pace_layer(
      stream, "linear backward", accesses_of(x, weight, grad_z, grad_x, grad_weight, grad_bias),
      {layer_of(x.rows, x.cols, grad_z), backward_for(grad_x.data, grad_weight.data)},
      [&] { inner_.linear_backward(stream, x, weight, grad_z, grad_x, grad_weight, grad_bias); });
}

std::size_t PacedBackend::conv_scratch(const Windows& windows) const {
  return inner_.conv_scratch(windows);
}

// A convolution is acted as the layer over its patches, because a GPU library's products read them
// from the images too.
void PacedBackend::conv_forward(Stream& stream, const ConvForward& call) {
  pace_layer(stream, "conv",
             accesses_of(call.x, call.weight, call.bias, call.y, call.preactivation),
             {layer_of(call.windows, call.x, call.y), {}, call.scratch.num_bytes()},
             [&] { inner_.conv_forward(stream, call); });
}

void PacedBackend::conv_backward(Stream& stream, const ConvBackward& call) {
  pace_layer(
      stream, "conv backward",
      accesses_of(call.x, call.weight, call.grad_z, call.grad_x, call.grad_weight, call.grad_bias),
      {layer_of(call.windows, call.x, call.grad_z),
       backward_for(call.grad_x.data, call.grad_weight.data), call.scratch.num_bytes()},
      [&] { inner_.conv_backward(stream, call); });
}

void PacedBackend::attention_forward(Stream& stream, const AttentionShape& shape,
                                     ConstTensorView qkv, TensorView y, TensorView log_sums) {
  pace_layer(stream, "attention", accesses_of(qkv, y, log_sums), {products_of(shape, qkv.dtype)},
             [&] { inner_.attention_forward(stream, shape, qkv, y, log_sums); });
}

void PacedBackend::attention_backward(Stream& stream, const AttentionShape& shape,
                                      ConstTensorView qkv, ConstTensorView y,
                                      ConstTensorView log_sums, ConstTensorView grad_y,
                                      TensorView grad_qkv, TensorView scratch) {
  pace_layer(stream, "attention backward", accesses_of(qkv, y, grad_y, grad_qkv, scratch),
             {products_of(shape, qkv.dtype), {}, 0, predict::kAttentionBackward}, [&] {
               inner_.attention_backward(stream, shape, qkv, y, log_sums, grad_y, grad_qkv,
                                         scratch);
             });
}

void PacedBackend::softmax_cross_entropy_forward(Stream& stream, ConstMatrixView logits,
                                                 ConstTensorView labels, Reduction reduction,
                                                 MatrixView probabilities, TensorView loss) {
  pace(stream, "cross entropy", accesses_of(logits, labels, probabilities, loss), [&] {
    inner_.softmax_cross_entropy_forward(stream, logits, labels, reduction, probabilities, loss);
  });
}

void PacedBackend::softmax_cross_entropy_backward(Stream& stream, ConstMatrixView probabilities,
                                                  ConstTensorView labels, Reduction reduction,
                                                  ConstTensorView grad_loss,
                                                  MatrixView grad_logits) {
  pace(stream, "cross entropy backward", accesses_of(probabilities, grad_loss, grad_logits), [&] {
    inner_.softmax_cross_entropy_backward(stream, probabilities, labels, reduction, grad_loss,
                                          grad_logits);
  });
}

void PacedBackend::sgd(Stream& stream, std::span<const OptimizerParameter> parameters,
                       const StepScalars& scalars, const SgdOptions& options) {
  pace_update(stream, "sgd", parameters, [&] { inner_.sgd(stream, parameters, scalars, options); });
}

void PacedBackend::adamw(Stream& stream, std::span<const OptimizerParameter> parameters,
                         const StepScalars& scalars, const AdamWOptions& options) {
  pace_update(stream, "adamw", parameters,
              [&] { inner_.adamw(stream, parameters, scalars, options); });
}

Listening::Listening(DeviceType type, KernelListener& listener)
    : type_(type), backend_(kernels::backend(type)) {
  detail::listener.store(&listener, std::memory_order_release);
  kernels::set_backend(type, &backend_);
}

Listening::~Listening() {
  kernels::set_backend(type_, nullptr);
  detail::listener.store(nullptr, std::memory_order_release);
}

}  // namespace lockstep::slow_motion
