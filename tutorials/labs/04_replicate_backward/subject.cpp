#include "tutorials/labs/host/subject.h"
#include <cstddef>
#include <vector>

#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "replicate_backward.h"
#include "tutorials/labs/host/tensors.h"

namespace {

using lockstep::Device;
using lockstep::DeviceType;
using lockstep::Tensor;
using lockstep::Variable;

}  // namespace

// inputs: {"parameter": a vector, "factors": one vector per device, or null where the copy there is
// not used}. The loss is the sum over devices of the sum of factor * copy.
// answer: {"grad": the parameter's, "device": where it is, "factors": the same gradients again,
// after the node's backward() was given them, null where it was given none}.
extern "C" void lab_subject(const nlohmann::json& inputs, nlohmann::json& answer) {
  const Variable parameter = lab::leaf(lab::vector_of(inputs.at("parameter")));
  const nlohmann::json& factors = inputs.at("factors");
  std::vector<Device> devices;
  for (std::size_t d = 0; d < factors.size(); ++d) {
    devices.push_back({DeviceType::cpu, static_cast<int>(d)});
  }
  const std::vector<Variable> copies = lab::replicate(parameter, devices);
  std::vector<Tensor> grads(devices.size());
  Variable loss(Tensor::zeros({}, lockstep::DType::float64));
  for (std::size_t d = 0; d < devices.size(); ++d) {
    if (factors[d].is_null()) continue;
    grads[d] = lab::vector_of(factors[d]).to(devices[d]);
    const Variable part = lockstep::multiply(copies.at(d), Variable(grads[d].clone()));
    loss = lockstep::add(loss, lockstep::to(lockstep::sum(part), devices[0]));
  }
  loss.backward(Tensor(), lockstep::Graph::retain);
  answer["grad"] = lab::numbers_of(parameter.grad());
  answer["device"] = parameter.grad().defined() ? to_string(parameter.grad().device()) : "";
  copies.at(0).node()->backward(grads);
  for (const Tensor& grad : grads) answer["factors"].push_back(lab::numbers_of(grad));
}
