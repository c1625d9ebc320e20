#include "replicate_backward.h"

#include <cstddef>
#include <span>
#include <utility>

#include "engine/autograd/node.h"
#include "lab.h"

namespace lab {
namespace {

using lockstep::Device;
using lockstep::Gradients;
using lockstep::Tensor;
using lockstep::Variable;

// grad_outputs[d] is the gradient of the copy on device d, on that device; undefined where the copy
// was not used. Returns one gradient, on node.device(): the sum of the defined ones, added in the
// order of the devices. Others may still need what is in grad_outputs.
Gradients replicate_backward(const lockstep::Node& node, const Gradients& grad_outputs) {
  Tensor sum;
  // SOLUTION begin: replicate_backward: sum = the defined grad_outputs, in order, on node.device()
  for (const Tensor& grad : grad_outputs) {
    if (!grad.defined()) continue;
    const Tensor here = grad.to(node.device());
    if (!sum.defined()) {
      sum = here.clone();
      continue;
    }
    const std::span<const double> values = here.host<const double>();
    const std::span<double> sums = sum.host<double>();
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
  }
  // SOLUTION end
  return {sum};
}

}  // namespace

std::vector<Variable> replicate(const Variable& parameter, const std::vector<Device>& devices) {
  std::vector<Tensor> copies;
  for (const Device device : devices) copies.push_back(parameter.value().clone().to(device));
  return lockstep::record_many("LabReplicate", std::span(&parameter, 1), std::move(copies),
                               devices.at(0), replicate_backward);
}

}  // namespace lab
