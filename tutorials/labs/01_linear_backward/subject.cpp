#include "tutorials/labs/host/subject.h"

#include <string>

#include "engine/autograd/ops/ops.h"
#include "linear_backward.h"
#include "tutorials/labs/host/tensors.h"

namespace {

nlohmann::json shaped(const lockstep::Tensor& tensor) {
  nlohmann::json shape = nlohmann::json::array();
  for (std::size_t dim = 0; tensor.defined() && dim < tensor.shape().num_dims(); ++dim) {
    shape.push_back(tensor.size(dim));
  }
  return {{"shape", shape}, {"values", lab::numbers_of(tensor)}};
}

}  // namespace

// inputs: {"x", "weight", "bias", "grad_y": matrices and a vector, "times": how often the layer is
// applied} and perhaps "call": one of the functions. answer: the gradients of the three leaves, or
// the function's {"shape", "values"}.
extern "C" void lab_subject(const nlohmann::json& inputs, nlohmann::json& answer) {
  const std::string call = inputs.value("call", "");
  if (!call.empty()) {
    const lockstep::Tensor grad_y = lab::matrix_of(inputs.at("grad_y"));
    answer = shaped(
        call == "grad_x"        ? lab::gradient_of_x(grad_y, lab::matrix_of(inputs.at("weight")))
        : call == "grad_weight" ? lab::gradient_of_weight(grad_y, lab::matrix_of(inputs.at("x")))
                                : lab::gradient_of_bias(grad_y));
    return;
  }
  const lockstep::Variable x = lab::leaf(lab::matrix_of(inputs.at("x")));
  const lockstep::Variable weight = lab::leaf(lab::matrix_of(inputs.at("weight")));
  const lockstep::Variable bias = lab::leaf(lab::vector_of(inputs.at("bias")));
  lockstep::Variable y = x;
  for (int i = 0; i < inputs.at("times").get<int>(); ++i) y = lab::linear(y, weight, bias);
  y.backward(lab::matrix_of(inputs.at("grad_y")));
  answer["grad_x"] = lab::numbers_of(x.grad());
  answer["grad_weight"] = lab::numbers_of(weight.grad());
  answer["grad_bias"] = lab::numbers_of(bias.grad());
}
