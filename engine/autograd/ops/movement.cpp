// Moves to another shape, device or dtype.
#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "engine/core/error.h"
#include "engine/runtime/device_span.h"
#include "engine/trace/span.h"
#include "kernels/matmul_precision.h"

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

Variable to(const Variable& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "Convert");
  const auto backward = [](const Node& node, const Gradients& grad_outputs) {
    return Gradients{grad_outputs[0].to(node.edge(0).dtype)};
  };
  return record("Convert", {x}, x.value().to(dtype), {}, backward);
}

Variable as_activation(std::string_view operation, const Variable& x, DType parameters) {
  const bool is_mixed = x.dtype() == DType::bfloat16 && parameters == DType::float32;
  require(is_mixed || x.dtype() == parameters, ErrorCode::DType, operation,
          "all tensors must have one dtype, found {} and {}", to_string(x.dtype()),
          to_string(parameters));
  return to(x, kernels::activation_dtype(parameters));
}

}  // namespace lockstep
