#include "engine/optim/clip_grad_norm.h"

#include <cmath>
#include <map>

#include "engine/core/error.h"
#include "engine/trace/span.h"

namespace lockstep::optim {

double clip_grad_norm(const std::vector<Variable>& parameters, double max_norm,
                      NonFiniteNorm non_finite) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::optimizer, "clip_grad_norm");
  require(max_norm >= 0, ErrorCode::Usage, "clip_grad_norm",
          "the largest norm must not be negative, found {}", max_norm);
  std::map<Device, std::vector<TensorView>> grads;
  for (const Variable& parameter : parameters) {
    if (parameter.grad().defined()) {
      grads[parameter.grad().device()].push_back(parameter.grad().view());
    }
  }
  double sum_of_squares = 0;
  for (const auto& [device, views] : grads) {
    const Tensor norm = Tensor::empty({}, DType::float64, device);
    const std::vector<ConstTensorView> inputs(views.begin(), views.end());
    norm.backend().norm(norm.stream(), inputs, norm.view());
    const double of_device = norm.item();
    sum_of_squares += of_device * of_device;
  }
  const double norm = std::sqrt(sum_of_squares);
  require(non_finite == NonFiniteNorm::scale || std::isfinite(norm), ErrorCode::Numeric,
          "clip_grad_norm",
          "the total norm of the gradients is non-finite ({}), so it cannot be clipped", norm);
  const double factor = max_norm / (norm + 1e-6);
  if (factor >= 1) return norm;
  for (const Variable& parameter : parameters) {
    if (parameter.grad().defined()) parameter.grad().bump_version();
  }
  for (const auto& [device, views] : grads) {
    kernels::backend(device.type)
        .multi_scale(runtime::logical_device(device).compute_stream(), views, factor);
  }
  return norm;
}

}  // namespace lockstep::optim
