// Moves to another shape or another device.
#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "engine/runtime/device_span.h"
#include "engine/trace/span.h"

namespace lockstep {

// The result shares x's memory, and so does its gradient.
Variable reshape(const Variable& x, const Shape& shape) {
  const auto backward = [](const Node& node, const Gradients& grad_outputs) {
    return Gradients{grad_outputs[0].reshape(node.edge(0).shape)};
  };
  return record("Reshape", {x}, x.value().reshape(shape), {}, backward);
}

// A copy to another device; the gradient is copied back.
Variable to(const Variable& x, Device device) {
  if (x.device() == device) return x;
  runtime::WorkSpan span(x.value().stream(), trace::Lane::copy, trace::Category::copy, "ToDevice",
                         x.value().num_bytes());
  const auto backward = [](const Node& node, const Gradients& grad_outputs) {
    return Gradients{grad_outputs[0].to(node.edge(0).device)};
  };
  return record("ToDevice", {x}, x.value().to(device), {}, backward);
}

}  // namespace lockstep
