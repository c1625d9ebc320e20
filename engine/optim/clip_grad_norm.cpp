#include "engine/optim/clip_grad_norm.h"

#include <cmath>
#include <map>

#include "engine/core/error.h"
#include "engine/trace/observer.h"
#include "engine/trace/span.h"
#include "kernels/calls.h"

namespace lockstep::optim {

namespace {

void require_max_norm(double max_norm) {
  require(max_norm >= 0, ErrorCode::Usage, "clip_grad_norm",
          "the largest norm must not be negative, found {}", max_norm);
}

Tensor norm_of(const std::vector<TensorView>& views, Device device) {
  const Tensor norm = Tensor::empty({}, DType::float64, device);
  const std::vector<ConstTensorView> inputs(views.begin(), views.end());
  norm.backend().norm(norm.stream(), {inputs, norm.view()});
  return norm;
}

}  // namespace

double clip_grad_norm(const std::vector<Variable>& parameters, double max_norm) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::optimizer, "clip_grad_norm");
  require_max_norm(max_norm);
  std::map<Device, std::vector<TensorView>> grads;
  for (const Variable& parameter : parameters) {
    if (parameter.grad().defined()) {
      grads[parameter.grad().device()].push_back(parameter.grad().view());
    }
  }
  double sum_of_squares = 0;
  for (const auto& [device, views] : grads) {
    const double of_device = norm_of(views, device).item();
    sum_of_squares += of_device * of_device;
  }
  const double norm = std::sqrt(sum_of_squares);
  const double factor = max_norm / (norm + 1e-6);
  if (factor >= 1) return norm;
  trace::fact("clipped", {});
  for (const Variable& parameter : parameters) {
    const Tensor& grad = parameter.grad();
    if (!grad.defined()) continue;
    grad.bump_version();
    grad.backend().scale(grad.stream(), {grad.view(), factor, grad.view()});
  }
  return norm;
}

Tensor clip_grad_norm_on_device(const std::vector<Variable>& parameters, double max_norm) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::optimizer, "clip_grad_norm");
  require_max_norm(max_norm);
  require(!parameters.empty(), ErrorCode::Usage, "clip_grad_norm", "there are no parameters");
  const Device device = parameters.front().device();
  std::vector<TensorView> views;
  for (const Variable& parameter : parameters) {
    require_same_device("clip_grad_norm", {&parameters.front().value(), &parameter.value()});
    if (!parameter.grad().defined()) continue;
    if (std::isfinite(max_norm)) parameter.grad().bump_version();
    views.push_back(parameter.grad().view());
  }
  const Tensor norm = norm_of(views, device);
  if (std::isfinite(max_norm)) {
    trace::fact("clipped", {});
    norm.backend().clip(norm.stream(), {views, norm.view(), max_norm});
  }
  return norm;
}

}  // namespace lockstep::optim
