#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "engine/runtime/device_span.h"
#include "engine/trace/span.h"

namespace lockstep {
namespace {

// A copy to another device; the gradient takes the way back.
class ToDeviceNode final : public Node {
 public:
  const char* name() const override { return "ToDevice"; }
  Gradients backward(const Gradients& grad_outputs) override {
    return {grad_outputs[0].to(edge(0).device)};
  }
  void release_saved() override {}
};

}  // namespace

Variable to(const Variable& x, Device device) {
  if (x.device() == device) return x;
  runtime::WorkSpan span(x.value().stream(), trace::Lane::copy, trace::Category::copy, "ToDevice",
                         x.value().num_bytes());
  return record<ToDeviceNode>({x}, x.value().to(device));
}

}  // namespace lockstep
