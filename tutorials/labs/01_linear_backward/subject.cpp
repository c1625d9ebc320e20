#include "tutorials/labs/host/subject.h"

#include "engine/autograd/ops/ops.h"
#include "linear_backward.h"
#include "tutorials/labs/host/tensors.h"

// inputs: {"x", "weight", "bias", "grad_y": matrices and a vector, "times": how often the layer is
// applied}. answer: the gradients of the three leaves.
extern "C" void lab_subject(const nlohmann::json& inputs, nlohmann::json& answer) {
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
