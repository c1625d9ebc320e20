#include "engine/parallel/data_parallel/scatter.h"

#include "engine/autograd/node.h"
#include "engine/core/error.h"
#include "engine/parallel/data_parallel/gather.h"
#include "engine/runtime/device_span.h"
#include "engine/trace/span.h"

namespace lockstep::parallel {
namespace {

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
  void release_saved() override {}

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

std::vector<Variable> scatter_by(const Variable& x, const std::vector<Device>& devices,
                                 std::size_t dim, const plan::ScatterPlan& plan) {
  return record_many<ScatterNode>(std::span(&x, 1), cut(x.value(), devices, dim, plan), x.device(),
                                  plan, dim);
}

}  // namespace

std::vector<Variable> scatter(const Variable& x, const std::vector<Device>& devices,
                              std::size_t dim) {
  return scatter_by(x, devices, dim, plan::scatter_plan(x.shape(), dim, devices.size()));
}

std::vector<Variable> scatter_with_sizes(const Variable& x, const std::vector<Device>& devices,
                                         const std::vector<std::size_t>& chunk_sizes,
                                         std::size_t dim) {
  require(dim < x.shape().num_dims(), ErrorCode::Shape, "scatter",
          "cannot split {}-D input along dim {}", x.shape().num_dims(), dim);
  require(chunk_sizes.size() == devices.size(), ErrorCode::Usage, "scatter",
          "{} chunk sizes for {} devices; give one per device", chunk_sizes.size(), devices.size());
  return scatter_by(x, devices, dim, plan::scatter_plan_with_sizes(x.shape()[dim], chunk_sizes));
}

std::vector<Tensor> scatter(const Tensor& x, const std::vector<Device>& devices, std::size_t dim) {
  return cut(x, devices, dim, plan::scatter_plan(x.shape(), dim, devices.size()));
}

Tensor take_part(const Tensor& from, std::size_t dim, const plan::ScatterPart& part,
                 Device device) {
  if (dim == 0) return from.rows(part.offset, part.offset + part.size).to(device);
  Tensor result = Tensor::empty(from.shape().with(dim, part.size), from.dtype(), from.device());
  result.backend().copy_matrix(result.stream(), part_view(from, dim, part),
                               part_view(result, dim, {0, 0, part.size}));
  return result.to(device);
}

}  // namespace lockstep::parallel
