#include "engine/parallel/clip_over_ranks.h"

#include <cmath>
#include <limits>

#include "engine/optim/clip_grad_norm.h"
#include "kernels/calls.h"

namespace lockstep::parallel {

Tensor clip_over_ranks(const std::vector<Variable>& counted, const std::vector<Variable>& all,
                       double max_norm, comm::Communicator& communicator, Device device) {
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  const double mine =
      counted.empty() ? 0 : optim::clip_grad_norm_on_device(counted, kNoLimit).item();
  const double squares =
      comm::reduce_number(mine * mine, comm::ReduceOp::sum, communicator, device);
  const Tensor norm = Tensor::full({}, std::sqrt(squares), DType::float64, device);
  std::vector<TensorView> grads;
  for (const Variable& parameter : all) {
    if (!parameter.grad().defined()) continue;
    parameter.grad().bump_version();
    grads.push_back(parameter.grad().view());
  }
  if (max_norm < kNoLimit && !grads.empty()) {
    norm.backend().clip(norm.stream(), {grads, norm.view(), max_norm});
  }
  return norm;
}

}  // namespace lockstep::parallel
