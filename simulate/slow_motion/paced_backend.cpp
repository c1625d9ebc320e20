#include "simulate/slow_motion/paced_backend.h"

#include <initializer_list>
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

template <typename Views>
Memories memories(const Views& views) {
  Memories all;
  for (const auto& view : views) all.push_back(memory(view));
  return all;
}

double num_bytes(const Memories& reads, const Memories& writes) {
  std::size_t total = 0;
  for (const Memory& read : reads) total += read.num_bytes;
  for (const Memory& written : writes) total += written.num_bytes;
  return static_cast<double>(total);
}

const predict::DeviceProfile& profile() {
  return machine()->topology().device;
}

// How many times as long a kernel of so many bytes takes while all devices work.
double traffic_beside(double num_bytes) {
  return predict::traffic_beside(profile(), machine()->devices().size(), num_bytes);
}

int index_of(Stream& stream) {
  return stream.device().device().index;
}

// Runs a kernel before a listener, if there is one.
template <typename Real>
bool is_heard(Stream& stream, const KernelSizes& kernel, const Real& real) {
  KernelListener* const listener = detail::listener.load(std::memory_order_acquire);
  if (listener == nullptr) return false;
  real();
  listener->on_kernel(stream, kernel);
  return true;
}

// A kernel that takes as long as so many bytes of memory traffic.
template <typename Real>
void pace_bytes(Stream& stream, const char* name, const Memories& reads, const Memories& writes,
                double bytes, const Real& real, Kernel::Kind kind = Kernel::Kind::computes) {
  if (is_heard(stream, {reads, writes, {}, bytes}, real)) return;
  const double seconds = predict::traffic_seconds(profile(), bytes) * traffic_beside(bytes);
  machine()->run(index_of(stream), {name, seconds, kind, reads, writes}, real);
}

template <typename Real>
void pace(Stream& stream, const char* name, const Memories& reads, const Memories& writes,
          const Real& real, Kernel::Kind kind = Kernel::Kind::computes) {
  pace_bytes(stream, name, reads, writes, num_bytes(reads, writes), real, kind);
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
  layer.image_bytes = num_bytes({memory(images)}, {memory(outputs)});
  return layer;
}

// A kernel that computes for seconds(), which is called if there is a machine.
template <typename Seconds, typename Real>
void pace_seconds(Stream& stream, const char* name, const Memories& reads, const Memories& writes,
                  const Seconds& seconds, const Real& real) {
  if (is_heard(stream, {reads, writes}, real)) return;
  machine()->run(index_of(stream), {name, seconds(), Kernel::Kind::computes, reads, writes}, real);
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
void pace_layer(Stream& stream, const char* name, const Memories& reads, const Memories& writes,
                const LayerCall& call, const Real& real) {
  if (is_heard(stream, {reads, writes, call.shape, 0, call.scratch_bytes}, real)) return;
  const double alone = call.backward
                           ? predict::backward_seconds(profile(), call.shape, *call.backward)
                           : predict::forward_seconds(profile(), call.shape);
  const double beside = predict::layers_beside(profile(), machine()->devices().size());
  pace_seconds(
      stream, name, reads, writes, [&] { return call.times * alone * beside; }, real);
}

// The time of a loss over rows of classes: as measured, or as long as its memory traffic.
double loss_seconds(const ConstMatrixView& logits, const Memories& reads, const Memories& writes,
                    double predict::LossSeconds::*direction) {
  if (!profile().measured) return predict::traffic_seconds(profile(), num_bytes(reads, writes));
  const predict::LossSeconds seconds = predict::loss_seconds(
      profile(), static_cast<double>(logits.rows), static_cast<double>(logits.cols));
  return seconds.*direction * traffic_beside(num_bytes(reads, writes));
}

// Labels and row numbers belong to a batch, which is there when it is needed. A single number, such
// as a loss, is for the host, and does not keep a GPU waiting.
bool is_free(const TensorView& to) {
  return to.dtype == DType::int64 || to.num_elements <= 1;
}

}  // namespace

void PacedBackend::copy(Stream& stream, ConstTensorView from, TensorView to) {
  const bool converts = from.dtype != to.dtype;
  if (is_free(to)) {
    inner_.copy(stream, from, to);
    if (!converts && machine()) machine()->give(index_of(stream), memory(to));
    return;
  }
  pace(
      stream, converts ? "convert" : "copy", {memory(from)}, {memory(to)},
      [&] { inner_.copy(stream, from, to); },
      converts ? Kernel::Kind::computes : Kernel::Kind::copies);
}

void PacedBackend::copy_matrix(Stream& stream, ConstMatrixView from, MatrixView to) {
  pace(
      stream, "copy_matrix", {memory(from)}, {memory(to)},
      [&] { inner_.copy_matrix(stream, from, to); }, Kernel::Kind::copies);
}

void PacedBackend::fill(Stream& stream, TensorView to, double value) {
  pace(stream, "fill", {}, {memory(to)}, [&] { inner_.fill(stream, to, value); });
}

void PacedBackend::gather_rows(Stream& stream, ConstMatrixView source, ConstTensorView indices,
                               MatrixView to, double scale) {
  const Memories writes{memory(to)};
  const double bytes = num_bytes({}, writes);
  const auto seconds = [&] {
    return predict::batch_seconds(profile(), bytes) * traffic_beside(bytes);
  };
  const auto real = [&] { inner_.gather_rows(stream, source, indices, to, scale); };
  if (machine() && seconds() > 0) return pace_seconds(stream, "batch", {}, writes, seconds, real);
  real();
  if (machine()) machine()->give(index_of(stream), memory(to));
}

void PacedBackend::add(Stream& stream, ConstTensorView a, ConstTensorView b, TensorView y) {
  pace(stream, "add", {memory(a), memory(b)}, {memory(y)}, [&] { inner_.add(stream, a, b, y); });
}

void PacedBackend::multiply(Stream& stream, ConstTensorView a, ConstTensorView b, TensorView y) {
  pace(stream, "multiply", {memory(a), memory(b)}, {memory(y)},
       [&] { inner_.multiply(stream, a, b, y); });
}

void PacedBackend::scale(Stream& stream, ConstTensorView x, double factor, TensorView y) {
  pace(stream, "scale", {memory(x)}, {memory(y)}, [&] { inner_.scale(stream, x, factor, y); });
}

void PacedBackend::axpy(Stream& stream, double factor, ConstTensorView x, TensorView y) {
  pace(stream, "axpy", {memory(x), memory(y)}, {memory(y)},
       [&] { inner_.axpy(stream, factor, x, y); });
}

void PacedBackend::ordered_sum(Stream& stream, std::span<const ConstTensorView> sources,
                               double factor, TensorView y) {
  const double added = static_cast<double>((sources.size() - 1) * y.num_bytes());
  Machine::Collective::add_bytes(added);
  pace(stream, "sum", memories(sources), {memory(y)},
       [&] { inner_.ordered_sum(stream, sources, factor, y); });
}

void PacedBackend::activation_forward(Stream& stream, Activation activation, ConstTensorView x,
                                      TensorView y) {
  pace(stream, "activation", {memory(x)}, {memory(y)},
       [&] { inner_.activation_forward(stream, activation, x, y); });
}

// The predictor counts an activation's gradient as part of the layer's products.
void PacedBackend::activation_backward(Stream& stream, Activation activation, ConstTensorView saved,
                                       ConstTensorView grad_y, TensorView grad_x) {
  pace_seconds(
      stream, "activation backward", {memory(saved), memory(grad_y)}, {memory(grad_x)},
      [] { return 0.0; },
      [&] { inner_.activation_backward(stream, activation, saved, grad_y, grad_x); });
}

void PacedBackend::dropout(Stream& stream, const DropoutMask& mask, ConstMatrixView x,
                           MatrixView y) {
  pace(stream, "dropout", {memory(x)}, {memory(y)}, [&] { inner_.dropout(stream, mask, x, y); });
}

void PacedBackend::sum(Stream& stream, ConstTensorView x, TensorView y) {
  pace(stream, "sum", {memory(x)}, {memory(y)}, [&] { inner_.sum(stream, x, y); });
}

void PacedBackend::argmax_rows(Stream& stream, ConstMatrixView x, TensorView y) {
  pace(stream, "argmax_rows", {memory(x)}, {memory(y)}, [&] { inner_.argmax_rows(stream, x, y); });
}

void PacedBackend::norm(Stream& stream, std::span<const ConstTensorView> x, TensorView y) {
  pace(stream, "norm", memories(x), {memory(y)}, [&] { inner_.norm(stream, x, y); });
}

void PacedBackend::matmul(Stream& stream, ConstMatrixView a, Transpose transpose_a,
                          ConstMatrixView b, Transpose transpose_b, MatrixView c, Write write) {
  const std::size_t inner_size = transpose_a == Transpose::yes ? a.rows : a.cols;
  pace_layer(stream, "matmul", {memory(a), memory(b)}, {memory(c)},
             {layer_of(c.batch * c.rows, inner_size, c)},
             [&] { inner_.matmul(stream, a, transpose_a, b, transpose_b, c, write); });
}

void PacedBackend::linear_forward(Stream& stream, ConstMatrixView x, ConstMatrixView weight,
                                  ConstTensorView bias, Activation activation, MatrixView y,
                                  MatrixView preactivation) {
  pace_layer(stream, "linear", {memory(x), memory(weight), memory(bias)},
             {memory(y), memory(preactivation)}, {layer_of(x.rows, x.cols, y)},
             [&] { inner_.linear_forward(stream, x, weight, bias, activation, y, preactivation); });
}

void PacedBackend::linear_backward(Stream& stream, ConstMatrixView x, ConstMatrixView weight,
                                   ConstMatrixView grad_z, MatrixView grad_x,
                                   MatrixView grad_weight, TensorView grad_bias) {
  pace_layer(stream, "linear backward", {memory(x), memory(weight), memory(grad_z)},
             {memory(grad_x), memory(grad_weight), memory(grad_bias)},
             {layer_of(x.rows, x.cols, grad_z), backward_for(grad_x.data, grad_weight.data)}, [&] {
               inner_.linear_backward(stream, x, weight, grad_z, grad_x, grad_weight, grad_bias);
             });
}

void PacedBackend::patches(Stream& stream, const Windows& windows, ConstTensorView x,
                           MatrixView patches) {
  pace(stream, "patches", {memory(x)}, {memory(patches)},
       [&] { inner_.patches(stream, windows, x, patches); });
}

void PacedBackend::fold_patches(Stream& stream, const Windows& windows, ConstMatrixView patches,
                                TensorView x) {
  pace(stream, "patches backward", {memory(patches)}, {memory(x)},
       [&] { inner_.fold_patches(stream, windows, patches, x); });
}

std::size_t PacedBackend::conv_scratch(const Windows& windows) const {
  return inner_.conv_scratch(windows);
}

// A convolution is acted as the layer over its patches, because a GPU library's products read them
// from the images too.
void PacedBackend::conv_forward(Stream& stream, const ConvForward& call) {
  pace_layer(stream, "conv", {memory(call.x), memory(call.weight), memory(call.bias)},
             {memory(call.y), memory(call.preactivation)},
             {layer_of(call.windows, call.x, call.y), {}, call.scratch.num_bytes()},
             [&] { inner_.conv_forward(stream, call); });
}

void PacedBackend::conv_backward(Stream& stream, const ConvBackward& call) {
  pace_layer(stream, "conv backward", {memory(call.x), memory(call.weight), memory(call.grad_z)},
             {memory(call.grad_x), memory(call.grad_weight), memory(call.grad_bias)},
             {layer_of(call.windows, call.x, call.grad_z),
              backward_for(call.grad_x.data, call.grad_weight.data), call.scratch.num_bytes()},
             [&] { inner_.conv_backward(stream, call); });
}

void PacedBackend::pool_forward(Stream& stream, const Windows& windows, Pooling pooling,
                                ConstTensorView x, TensorView y, TensorView winners) {
  pace(stream, "pool", {memory(x)}, {memory(y), memory(winners)},
       [&] { inner_.pool_forward(stream, windows, pooling, x, y, winners); });
}

void PacedBackend::pool_backward(Stream& stream, const Windows& windows, Pooling pooling,
                                 ConstTensorView winners, ConstTensorView grad_y,
                                 TensorView grad_x) {
  pace(stream, "pool backward", {memory(winners), memory(grad_y)}, {memory(grad_x)},
       [&] { inner_.pool_backward(stream, windows, pooling, winners, grad_y, grad_x); });
}

void PacedBackend::transpose(Stream& stream, ConstMatrixView x, TensorView y) {
  pace(stream, "transpose", {memory(x)}, {memory(y)}, [&] { inner_.transpose(stream, x, y); });
}

void PacedBackend::embedding_forward(Stream& stream, ConstTensorView tokens, ConstMatrixView weight,
                                     ConstMatrixView positions, MatrixView y) {
  // It reads as much of the weight as it writes.
  const Memories writes{memory(y)};
  pace_bytes(stream, "embedding", {memory(tokens), memory(weight), memory(positions)}, writes,
             2 * num_bytes({}, writes),
             [&] { inner_.embedding_forward(stream, tokens, weight, positions, y); });
}

void PacedBackend::embedding_backward(Stream& stream, ConstTensorView tokens,
                                      ConstMatrixView grad_y, MatrixView grad_weight,
                                      MatrixView grad_positions) {
  pace(stream, "embedding backward", {memory(tokens), memory(grad_y)},
       {memory(grad_weight), memory(grad_positions)},
       [&] { inner_.embedding_backward(stream, tokens, grad_y, grad_weight, grad_positions); });
}

namespace {

// Two products of every query with the keys that it sees: half of all keys.
predict::LayerShape products_of(const AttentionShape& shape, DType dtype) {
  return {static_cast<double>(shape.batch * shape.length), static_cast<double>(shape.length),
          static_cast<double>(shape.channels()), size_of(dtype)};
}

}  // namespace

void PacedBackend::attention_forward(Stream& stream, const AttentionShape& shape,
                                     ConstTensorView qkv, TensorView y, TensorView log_sums) {
  pace_layer(stream, "attention", {memory(qkv)}, {memory(y), memory(log_sums)},
             {products_of(shape, qkv.dtype)},
             [&] { inner_.attention_forward(stream, shape, qkv, y, log_sums); });
}

void PacedBackend::attention_backward(Stream& stream, const AttentionShape& shape,
                                      ConstTensorView qkv, ConstTensorView y,
                                      ConstTensorView log_sums, ConstTensorView grad_y,
                                      TensorView grad_qkv, TensorView scratch) {
  pace_layer(stream, "attention backward", {memory(qkv), memory(y), memory(grad_y)},
             {memory(grad_qkv), memory(scratch)},
             {products_of(shape, qkv.dtype), {}, 0, predict::kAttentionBackward}, [&] {
               inner_.attention_backward(stream, shape, qkv, y, log_sums, grad_y, grad_qkv,
                                         scratch);
             });
}

void PacedBackend::causal_softmax_forward(Stream& stream, ConstMatrixView scores, double scale,
                                          MatrixView p) {
  pace(stream, "causal softmax", {memory(scores)}, {memory(p)},
       [&] { inner_.causal_softmax_forward(stream, scores, scale, p); });
}

void PacedBackend::causal_softmax_backward(Stream& stream, ConstMatrixView p,
                                           ConstMatrixView grad_p, double scale,
                                           MatrixView grad_scores) {
  pace(stream, "causal softmax backward", {memory(p), memory(grad_p)}, {memory(grad_scores)},
       [&] { inner_.causal_softmax_backward(stream, p, grad_p, scale, grad_scores); });
}

void PacedBackend::softmax_cross_entropy_forward(Stream& stream, ConstMatrixView logits,
                                                 ConstTensorView labels, Reduction reduction,
                                                 MatrixView probabilities, TensorView loss) {
  const Memories reads{memory(logits), memory(labels)};
  const Memories writes{memory(probabilities), memory(loss)};
  pace_seconds(
      stream, "cross entropy", reads, writes,
      [&] { return loss_seconds(logits, reads, writes, &predict::LossSeconds::forward); },
      [&] {
        inner_.softmax_cross_entropy_forward(stream, logits, labels, reduction, probabilities,
                                             loss);
      });
}

void PacedBackend::softmax_cross_entropy_backward(Stream& stream, ConstMatrixView probabilities,
                                                  ConstTensorView labels, Reduction reduction,
                                                  ConstTensorView grad_loss,
                                                  MatrixView grad_logits) {
  const Memories reads{memory(probabilities), memory(grad_loss)};
  const Memories writes{memory(grad_logits)};
  pace_seconds(
      stream, "cross entropy backward", reads, writes,
      [&] { return loss_seconds(probabilities, reads, writes, &predict::LossSeconds::backward); },
      [&] {
        inner_.softmax_cross_entropy_backward(stream, probabilities, labels, reduction, grad_loss,
                                              grad_logits);
      });
}

void PacedBackend::mse_forward(Stream& stream, ConstTensorView x, ConstTensorView target,
                               Reduction reduction, TensorView loss) {
  pace(stream, "mse", {memory(x), memory(target)}, {memory(loss)},
       [&] { inner_.mse_forward(stream, x, target, reduction, loss); });
}

void PacedBackend::mse_backward(Stream& stream, ConstTensorView x, ConstTensorView target,
                                Reduction reduction, ConstTensorView grad_loss, TensorView grad_x) {
  pace(stream, "mse backward", {memory(x), memory(target), memory(grad_loss)}, {memory(grad_x)},
       [&] { inner_.mse_backward(stream, x, target, reduction, grad_loss, grad_x); });
}

void PacedBackend::layer_norm_forward(Stream& stream, const LayerNormForward& call) {
  pace(stream, "layer norm", {memory(call.x), memory(call.weight), memory(call.bias)},
       {memory(call.y), memory(call.mean), memory(call.inverse_std)},
       [&] { inner_.layer_norm_forward(stream, call); });
}

void PacedBackend::layer_norm_backward(Stream& stream, const LayerNormBackward& call) {
  pace(stream, "layer norm backward",
       {memory(call.x), memory(call.weight), memory(call.mean), memory(call.inverse_std),
        memory(call.grad_y)},
       {memory(call.grad_x), memory(call.grad_weight), memory(call.grad_bias)},
       [&] { inner_.layer_norm_backward(stream, call); });
}

void PacedBackend::batch_norm_forward(Stream& stream, const BatchNormForward& call) {
  pace(stream, "batch norm", {memory(call.x), memory(call.weight), memory(call.bias)},
       {memory(call.y), memory(call.mean), memory(call.inverse_std), memory(call.running_mean),
        memory(call.running_var)},
       [&] { inner_.batch_norm_forward(stream, call); });
}

void PacedBackend::batch_norm_backward(Stream& stream, const BatchNormBackward& call) {
  pace(stream, "batch norm backward",
       {memory(call.x), memory(call.weight), memory(call.mean), memory(call.inverse_std),
        memory(call.grad_y)},
       {memory(call.grad_x), memory(call.grad_weight), memory(call.grad_bias)},
       [&] { inner_.batch_norm_backward(stream, call); });
}

void PacedBackend::batch_moments(Stream& stream, ConstMatrixView x, TensorView moments) {
  pace(stream, "batch moments", {memory(x)}, {memory(moments)},
       [&] { inner_.batch_moments(stream, x, moments); });
}

void PacedBackend::batch_norm_sums(Stream& stream, const BatchNormBackward& call) {
  pace(stream, "batch norm sums",
       {memory(call.x), memory(call.mean), memory(call.inverse_std), memory(call.grad_y)},
       {memory(call.grad_weight), memory(call.grad_bias), memory(call.sums)},
       [&] { inner_.batch_norm_sums(stream, call); });
}

namespace {

// An optimizer's kernel, over all parameters at once.
template <typename Real>
void pace_update(Stream& stream, const char* name, std::span<const OptimizerParameter> parameters,
                 const Real& real) {
  Memories reads;
  Memories writes;
  for (const OptimizerParameter& parameter : parameters) {
    reads.push_back(memory(parameter.grad));
    writes.push_back(memory(parameter.weight));
  }
  const double bytes = num_bytes({}, writes);
  const auto seconds = [&] {
    return predict::update_seconds(profile(), bytes) * traffic_beside(predict::update_bytes(bytes));
  };
  pace_seconds(stream, name, reads, writes, seconds, real);
}

}  // namespace

void PacedBackend::sgd(Stream& stream, std::span<const OptimizerParameter> parameters,
                       const StepScalars& scalars, const SgdOptions& options) {
  pace_update(stream, "sgd", parameters, [&] { inner_.sgd(stream, parameters, scalars, options); });
}

void PacedBackend::adamw(Stream& stream, std::span<const OptimizerParameter> parameters,
                         const StepScalars& scalars, const AdamWOptions& options) {
  pace_update(stream, "adamw", parameters,
              [&] { inner_.adamw(stream, parameters, scalars, options); });
}

void PacedBackend::clip(Stream& stream, std::span<const TensorView> tensors, ConstTensorView norm,
                        double max_norm) {
  Memories reads = memories(tensors);
  reads.push_back(memory(norm));
  pace(stream, "clip", reads, memories(tensors),
       [&] { inner_.clip(stream, tensors, norm, max_norm); });
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
