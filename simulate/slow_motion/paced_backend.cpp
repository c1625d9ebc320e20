#include "simulate/slow_motion/paced_backend.h"

#include <vector>

#include "engine/runtime/logical_device.h"
#include "kernels/image_calls.h"
#include "kernels/norm_calls.h"
#include "kernels/sequence_calls.h"

namespace lockstep::slow_motion {
namespace {

// --- the memory that a kernel reads and writes

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

double num_bytes(const std::vector<Memory>& memories) {
  std::size_t total = 0;
  for (const Memory& memory : memories) total += memory.num_bytes;
  return static_cast<double>(total);
}

// A call as it describes itself (kernels/calls.h): it reads a view of const memory and writes any
// other; a list that is not const is changed in place.
struct Accesses {
  const char* name;
  std::vector<Memory> reads = {};
  std::vector<Memory> writes = {};

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
  void add(const Outputs& outputs) {
    for (const TensorView& view : outputs.views) add(view);
  }
  void add(std::span<const TensorView> views) {
    for (const TensorView& view : views) {
      add(ConstTensorView(view));
      add(view);
    }
  }
  void add(std::span<const OptimizerParameter> parameters) {
    for (const OptimizerParameter& parameter : parameters) {
      add(parameter.grad);
      add(parameter.weight);
    }
  }
};

Accesses accesses_of(const auto& call) {
  return call.describe([](const char* name, const auto&... views) {
    Accesses accesses{name};
    (accesses.add(views), ...);
    return accesses;
  });
}

// --- what a kernel costs

// A layer's products, an optimizer's update, or memory traffic.
struct Price {
  std::optional<predict::LayerShape> product = {};
  std::optional<predict::InputGradient> backward = {};  // of the product
  double times = 1;                                     // so many products
  std::size_t scratch_bytes = 0;
  std::optional<double> update_bytes = {};
  std::optional<double> traffic_bytes = {};
  Kernel::Kind kind = Kernel::Kind::computes;

  double num_products() const {
    if (!product) return 0;
    return times * (backward == predict::InputGradient::needed ? 2 : 1);
  }
  double seconds(const predict::DeviceProfile& device) const {
    if (update_bytes) return predict::update_seconds(device, *update_bytes);
    if (traffic_bytes) return predict::traffic_seconds(device, *traffic_bytes);
    if (!product) return 0;
    return times * (backward ? predict::backward_seconds(device, *product, *backward)
                             : predict::forward_seconds(device, *product));
  }
};

// outputs: rows of a layer's results, or their gradients.
predict::LayerShape layer_of(std::size_t rows, std::size_t inputs, const ConstMatrixView& outputs) {
  return {static_cast<double>(rows), static_cast<double>(inputs), static_cast<double>(outputs.cols),
          size_of(outputs.dtype)};
}

// Rows are the pixels of a convolution's images.
predict::LayerShape layer_of(const Windows& windows, const ConstTensorView& images,
                             const ConstMatrixView& outputs) {
  predict::LayerShape layer = layer_of(windows.rows(), windows.cols(), outputs);
  layer.image_bytes = num_bytes({memory(images), memory(outputs)});
  return layer;
}

predict::InputGradient backward_for(const auto& call) {
  const bool needs_both = call.grad_x.data != nullptr && call.grad_weight.data != nullptr;
  return needs_both ? predict::InputGradient::needed : predict::InputGradient::not_needed;
}

// Two products of every query with the keys that it sees: half of all keys.
predict::LayerShape products_of(const AttentionShape& shape, DType dtype) {
  return {static_cast<double>(shape.batch * shape.length), static_cast<double>(shape.length),
          static_cast<double>(shape.channels()), size_of(dtype)};
}

// Without a price of its own, a kernel takes as long as the traffic of all that it reads and
// writes.
Price price_of(const auto&, const Accesses& accesses) {
  return {.traffic_bytes = accesses.num_bytes()};
}

Price price_of(const Copy& call, const Accesses& accesses) {
  const bool converts = call.from.dtype != call.to.dtype;
  return {.traffic_bytes = accesses.num_bytes(),
          .kind = converts ? Kernel::Kind::computes : Kernel::Kind::copies};
}

Price price_of(const CopyMatrix&, const Accesses& accesses) {
  return {.traffic_bytes = accesses.num_bytes(), .kind = Kernel::Kind::copies};
}

// The predictor counts an activation's gradient as part of the layer's products.
Price price_of(const ActivationBackward&, const Accesses&) {
  return {};
}

// It reads as much of the weight as it writes.
Price price_of(const EmbeddingForward&, const Accesses& accesses) {
  return {.traffic_bytes = 2 * num_bytes(accesses.writes)};
}

Price price_of(const Matmul& call, const Accesses&) {
  const std::size_t inputs = call.transpose_a == Transpose::yes ? call.a.rows : call.a.cols;
  return {.product = layer_of(call.c.batch * call.c.rows, inputs, call.c)};
}

Price price_of(const LinearForward& call, const Accesses&) {
  return {.product = layer_of(call.x.rows, call.x.cols, call.y)};
}

Price price_of(const LinearBackward& call, const Accesses&) {
  return {.product = layer_of(call.x.rows, call.x.cols, call.grad_z),
          .backward = backward_for(call)};
}

// A convolution costs as much as the layer over its patches, because a GPU library's products read
// them from the images too.
Price price_of(const ConvForward& call, const Accesses&) {
  return {.product = layer_of(call.windows, call.x, call.y),
          .scratch_bytes = call.scratch.num_bytes()};
}

Price price_of(const ConvBackward& call, const Accesses&) {
  return {.product = layer_of(call.windows, call.x, call.grad_z),
          .backward = backward_for(call),
          .scratch_bytes = call.scratch.num_bytes()};
}

Price price_of(const AttentionForward& call, const Accesses&) {
  return {.product = products_of(call.shape, call.qkv.dtype)};
}

Price price_of(const AttentionBackward& call, const Accesses&) {
  return {.product = products_of(call.shape, call.qkv.dtype), .times = predict::kAttentionBackward};
}

Price price_of(const Sgd&, const Accesses& accesses) {
  return {.update_bytes = num_bytes(accesses.writes)};
}
Price price_of(const AdamW&, const Accesses& accesses) {
  return {.update_bytes = num_bytes(accesses.writes)};
}

double moved_bytes(const Price& price, const Accesses& accesses) {
  if (price.update_bytes) return predict::kUpdatePasses * *price.update_bytes;
  return price.traffic_bytes.value_or(accesses.num_bytes());
}

// --- running it

int index_of(Stream& stream) {
  return stream.device().device().index;
}

// Runs the kernel for as long as it would take on the machine, or tells the listener of it.
void pace(Stream& stream, const auto& call, const auto& real) {
  const Accesses accesses = accesses_of(call);
  const Price price = price_of(call, accesses);
  if (KernelListener* const listener = detail::listener.load(std::memory_order_acquire)) {
    if (listener->runs_kernels()) real();
    return listener->on_kernel(
        stream,
        {accesses.name, accesses.reads, accesses.writes, price.product, price.num_products(),
         moved_bytes(price, accesses), price.traffic_bytes.value_or(0), price.scratch_bytes});
  }
  machine()->run(index_of(stream),
                 {accesses.name, price.seconds(machine()->topology().device), price.kind,
                  accesses.reads, accesses.writes},
                 real);
}

void run(Stream& stream, const auto& call, const auto& real) {
  pace(stream, call, real);
}

// Labels and row numbers belong to a batch, which is there when it is needed. A single number, such
// as a loss, is for the host, and does not keep a GPU waiting.
void run(Stream& stream, const Copy& call, const auto& real) {
  const bool is_free = call.to.dtype == DType::int64 || call.to.num_elements <= 1;
  if (!is_free) return pace(stream, call, real);
  real();
  if (call.from.dtype == call.to.dtype && machine()) {
    machine()->give(index_of(stream), memory(call.to));
  }
}

void run(Stream& stream, const GatherRows& call, const auto& real) {
  real();
  if (machine()) machine()->give(index_of(stream), memory(call.to));
}

void run(Stream& stream, const OrderedReduce& call, const auto& real) {
  const std::size_t num_added = call.sources.size() - 1;
  Machine::Collective::add_bytes(static_cast<double>(num_added * call.y.num_bytes()));
  pace(stream, call, real);
}

}  // namespace

#define LOCKSTEP_PACED(method, Call)                            \
  void PacedBackend::method(Stream& stream, const Call& call) { \
    run(stream, call, [&] { inner_.method(stream, call); });    \
  }
LOCKSTEP_KERNELS(LOCKSTEP_PACED)

std::size_t PacedBackend::conv_scratch(const Windows& windows) const {
  return inner_.conv_scratch(windows);
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
