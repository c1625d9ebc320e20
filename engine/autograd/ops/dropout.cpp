#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "engine/core/error.h"
#include "engine/runtime/step_graph.h"
#include "engine/trace/span.h"

namespace lockstep {
namespace {

// y = x * mask / (1 - p); the mask is a function of numbers, so backward draws it again instead of
// keeping it.
class DropoutNode final : public Node {
 public:
  explicit DropoutNode(const kernels::DropoutMask& mask) : mask_(mask) {}
  const char* name() const override { return "Dropout"; }
  Gradients backward(const Gradients& grad_outputs) override {
    Tensor grad_x = gradient_buffer(0);
    grad_x.backend().dropout(grad_x.stream(), mask_, grad_outputs[0].matrix(), grad_x.matrix());
    return {grad_x};
  }
  void release_saved() override {}

 private:
  kernels::DropoutMask mask_;
};

}  // namespace

Variable dropout(const Variable& x, double probability, std::uint64_t seed, std::uint32_t layer) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "Dropout");
  require(probability >= 0 && probability <= 1, ErrorCode::Usage, "dropout",
          "dropout probability has to be between 0 and 1, but got {}", probability);
  const ThreadContext& context = thread_context();
  kernels::DropoutMask mask{probability, seed, context.step, layer, context.first_row};
  // A graph draws by the step of each launch.
  if (const std::int64_t* step = runtime::captured_step_number(x.device())) {
    mask.step_on_device = {step, DType::int64, 1};
  }
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  y.backend().dropout(y.stream(), mask, x.value().matrix(), y.matrix());
  return record<DropoutNode>({x}, std::move(y), mask);
}

}  // namespace lockstep
