#include "engine/parallel/data_parallel/gather.h"

#include "engine/autograd/node.h"
#include "engine/core/error.h"
#include "engine/parallel/data_parallel/scatter.h"
#include "engine/runtime/device_span.h"
#include "engine/trace/span.h"

namespace lockstep::parallel {
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
  void release_saved() override {}

 private:
  std::vector<plan::ScatterPart> parts_;
  std::size_t dim_;
};

// A scalar takes part as a vector of one element.
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

}  // namespace lockstep::parallel
