#include "engine/autograd/node.h"
#include "engine/core/error.h"
#include "engine/parallel/data_parallel/stages.h"
#include "engine/runtime/device_span.h"
#include "engine/trace/span.h"

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
  result.backend().copy_matrix(result.stream(), part_view(from, dim, part),
                               part_view(result, dim, {0, 0, part.size}));
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
  whole.backend().copy_matrix(whole.stream(), part_view(local, dim, {0, 0, place.size}),
                              part_view(whole, dim, place));
}

class ScatterNode final : public Node {
 public:
  explicit ScatterNode(plan::ScatterPlan plan, std::size_t dim)
      : plan_(std::move(plan)), dim_(dim) {}
  const char* name() const override { return "Scatter"; }
  Gradients backward(const Gradients& grad_outputs) override {
    Tensor grad_x = gradient_buffer(0);
    for (std::size_t i = 0; i < grad_outputs.size(); ++i) {
      if (!grad_outputs[i].defined()) {  // a shard that the loss does not depend on
        grad_x.fill(0.0);
        break;
      }
    }
    for (std::size_t i = 0; i < grad_outputs.size(); ++i) {
      if (grad_outputs[i].defined()) put_part(grad_outputs[i], grad_x, dim_, plan_.parts[i]);
    }
    return {grad_x};
  }

 private:
  plan::ScatterPlan plan_;
  std::size_t dim_;
};

std::vector<Tensor> cut(const Tensor& x, const std::vector<Device>& devices, std::size_t dim,
                        const plan::ScatterPlan& plan) {
  runtime::WorkSpan span(x.stream(), trace::Lane::copy, trace::Category::copy, "scatter",
                         x.num_bytes());
  std::vector<Tensor> shards;
  for (const plan::ScatterPart& part : plan.parts) {
    shards.push_back(take_part(x, dim, part, devices[part.index]));
  }
  return shards;
}

}  // namespace

std::vector<Variable> scatter(const Variable& x, const std::vector<Device>& devices,
                              std::size_t dim) {
  plan::ScatterPlan plan = plan::scatter_plan(x.shape(), dim, devices.size());
  std::vector<Tensor> shards = cut(x.value(), devices, dim, plan);
  return record_many<ScatterNode>(std::span(&x, 1), std::move(shards), x.device(), std::move(plan),
                                  dim);
}

std::vector<Tensor> scatter(const Tensor& x, const std::vector<Device>& devices, std::size_t dim) {
  return cut(x, devices, dim, plan::scatter_plan(x.shape(), dim, devices.size()));
}

namespace {

class GatherNode final : public Node {
 public:
  GatherNode(std::vector<plan::ScatterPart> parts, std::size_t dim)
      : parts_(std::move(parts)), dim_(dim) {}
  const char* name() const override { return "Gather"; }
  Gradients backward(const Gradients& grad_outputs) override {
    Gradients grads(num_inputs());
    for (std::size_t i = 0; i < grads.size(); ++i) {
      if (!wants_gradient(i)) continue;
      grads[i] = take_part(grad_outputs[0], dim_, parts_[i], edge(i).device);
      if (edge(i).shape.num_dims() == 0) grads[i] = grads[i].reshape({});
    }
    return grads;
  }

 private:
  std::vector<plan::ScatterPart> parts_;
  std::size_t dim_;
};

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
  }
  std::vector<Tensor> results;
  results.push_back(std::move(whole));
  return record_many<GatherNode>(parts, std::move(results), output_device, std::move(places),
                                 dim)[0];
}

}  // namespace lockstep::parallel
