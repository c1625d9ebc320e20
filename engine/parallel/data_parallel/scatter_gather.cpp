#include <algorithm>

#include "engine/autograd/node.h"
#include "engine/core/error.h"
#include "engine/parallel/data_parallel/steps.h"
#include "engine/runtime/device_span.h"
#include "engine/trace/observer.h"
#include "engine/trace/span.h"
#include "kernels/calls.h"

namespace lockstep::parallel {

namespace {

// The part of a tensor along dim as a matrix [outer sizes, part.size * inner sizes].
MatrixView part_view(const Tensor& whole, std::size_t dim, const plan::ScatterPart& place) {
  std::size_t outer = 1;
  std::size_t inner = 1;
  for (std::size_t i = 0; i < dim; ++i) outer *= whole.size(i);
  for (std::size_t i = dim + 1; i < whole.num_dims(); ++i) inner *= whole.size(i);
  const std::size_t row = whole.size(dim) * inner;
  MatrixView view = matrix_view(whole.raw(), whole.dtype(), outer, place.size * inner);
  view.leading_dimension = row;
  view.data = static_cast<std::byte*>(view.data) + place.offset * inner * size_of(whole.dtype());
  return view;
}

// Copies a part of `from` along dim to a device; along dim 0 of the same device it is a view.
Tensor take_part(const Tensor& from, std::size_t dim, const plan::ScatterPart& part,
                 Device device) {
  if (dim == 0) return from.rows(part.offset, part.offset + part.size).to(device);
  Tensor result = Tensor::empty(from.shape().with(dim, part.size), from.dtype(), from.device());
  result.backend().copy_matrix(
      result.stream(), {part_view(from, dim, part), part_view(result, dim, {0, 0, part.size})});
  return result.to(device);
}

// Writes `part` into its place in `whole` along dim; they may be on different devices.
void put_part(const Tensor& part, const Tensor& whole, std::size_t dim,
              const plan::ScatterPart& place) {
  if (dim == 0) {
    whole.rows(place.offset, place.offset + place.size).copy_from(part);
    return;
  }
  const Tensor local = part.to(whole.device());
  whole.backend().copy_matrix(
      whole.stream(), {part_view(local, dim, {0, 0, place.size}), part_view(whole, dim, place)});
}

// Tells an observer that a part of a batch, or of a result, is on another device now.
void notify_arrival(std::string_view operation, Device from, Device to,
                    const plan::ScatterPart& place, const Tensor& part) {
  trace::Observer* const observer = trace::observer_of_arrivals();
  if (observer == nullptr || place.size == 0) return;
  observer->arrived({.operation = operation,
                     .to = to.index,
                     .from = std::span(&from.index, 1),
                     .offset = place.offset * (part.num_elements() / place.size),
                     .values = trace::host_values(part)});
}

std::vector<Tensor> cut(const Tensor& x, const std::vector<Device>& devices, std::size_t dim,
                        const plan::ScatterPlan& plan) {
  runtime::WorkSpan span(x.stream(), trace::Lane::copy, trace::Category::copy, "scatter",
                         x.num_bytes());
  std::vector<Tensor> shards;
  for (const plan::ScatterPart& part : plan.parts) {
    shards.push_back(take_part(x, dim, part, devices[part.index]));
    notify_arrival("scatter", x.device(), devices[part.index], part, shards.back());
  }
  return shards;
}

}  // namespace

std::vector<Variable> scatter(const Variable& x, const std::vector<Device>& devices,
                              std::size_t dim) {
  const plan::ScatterPlan plan = plan::scatter_plan(x.shape(), dim, devices.size());
  std::vector<Tensor> shards = cut(x.value(), devices, dim, plan);
  const auto backward = [plan, dim](const Node& node, const Gradients& grad_outputs) {
    const Tensor grad_x = node.gradient_buffer(0);
    // The loss may not depend on a shard.
    if (!std::ranges::all_of(grad_outputs, &Tensor::defined)) grad_x.fill(0.0);
    for (std::size_t i = 0; i < grad_outputs.size(); ++i) {
      if (grad_outputs[i].defined()) put_part(grad_outputs[i], grad_x, dim, plan.parts[i]);
    }
    return Gradients{grad_x};
  };
  return record_many("Scatter", std::span(&x, 1), std::move(shards), x.device(), backward);
}

std::vector<Tensor> scatter(const Tensor& x, const std::vector<Device>& devices, std::size_t dim) {
  return cut(x, devices, dim, plan::scatter_plan(x.shape(), dim, devices.size()));
}

namespace {

// A scalar counts as a vector of one element.
Shape gathered_as(const Tensor& tensor) {
  return tensor.num_dims() == 0 ? Shape{1} : tensor.shape();
}

}  // namespace

Variable gather(const std::vector<Variable>& parts, Device output_device, std::size_t dim) {
  require(!parts.empty(), ErrorCode::Usage, "gather", "there is nothing to gather");
  const Shape first = gathered_as(parts[0].value());
  require(dim < first.num_dims(), ErrorCode::Shape, "gather",
          "cannot gather {}-D tensors along dim {}", first.num_dims(), dim);
  std::vector<plan::ScatterPart> places;
  std::size_t total = 0;
  std::size_t num_bytes = 0;
  for (const Variable& part : parts) {
    const Shape shape = gathered_as(part.value());
    require(shape.num_dims() == first.num_dims() && shape.with(dim, 0) == first.with(dim, 0),
            ErrorCode::Shape, "gather",
            "shapes {} and {} differ outside dim {}; replicas must return equal sizes there",
            to_string(parts[0].shape()), to_string(part.shape()), dim);
    require_same_dtype("gather", {&parts[0].value(), &part.value()});
    places.push_back({places.size(), total, shape[dim]});
    total += shape[dim];
    num_bytes += part.value().num_bytes();
  }
  runtime::WorkSpan span(runtime::logical_device(output_device).compute_stream(), trace::Lane::copy,
                         trace::Category::copy, "gather", num_bytes);
  Tensor whole = Tensor::empty(first.with(dim, total), parts[0].dtype(), output_device);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    put_part(parts[i].value().reshape(gathered_as(parts[i].value())), whole, dim, places[i]);
    notify_arrival("gather", parts[i].device(), output_device, places[i], parts[i].value());
  }
  const auto backward = [places, dim](const Node& node, const Gradients& grad_outputs) {
    Gradients grads(node.num_inputs());
    for (std::size_t i = 0; i < grads.size(); ++i) {
      if (!node.wants_gradient(i)) continue;
      grads[i] = take_part(grad_outputs[0], dim, places[i], node.edge(i).device);
      if (node.edge(i).shape.num_dims() == 0) grads[i] = grads[i].reshape({});
    }
    return grads;
  };
  return record_many("Gather", parts, {std::move(whole)}, output_device, backward)[0];
}

}  // namespace lockstep::parallel
