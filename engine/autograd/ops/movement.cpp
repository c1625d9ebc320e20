// Moves to another shape or another device.
#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "engine/runtime/device_span.h"
#include "engine/trace/span.h"

namespace lockstep {
namespace {

// The result shares x's memory, and so does its gradient.
class ReshapeNode final : public Node {
 public:
  const char* name() const override { return "Reshape"; }
  Gradients backward(const Gradients& grad_outputs) override {
    return {grad_outputs[0].reshape(edge(0).shape)};
  }
};

}  // namespace

Variable reshape(const Variable& x, const Shape& shape) {
  return record<ReshapeNode>({x}, x.value().reshape(shape));
}

namespace {

// A copy to another device; the gradient is copied back.
class ToDeviceNode final : public Node {
 public:
  const char* name() const override { return "ToDevice"; }
  Gradients backward(const Gradients& grad_outputs) override {
    return {grad_outputs[0].to(edge(0).device)};
  }
};

}  // namespace

Variable to(const Variable& x, Device device) {
  if (x.device() == device) return x;
  runtime::WorkSpan span(x.value().stream(), trace::Lane::copy, trace::Category::copy, "ToDevice",
                         x.value().num_bytes());
  return record<ToDeviceNode>({x}, x.value().to(device));
}

}  // namespace lockstep
