#include "tutorials/labs/host/subject.h"

#include "attention_backward.h"

// inputs: {"q", "k", "v": a head's rows, "grads": for each call of attention_backward the gradient
// of its result} or {"weights", "grad_weights": of a row}. answer: {"q", "k", "v": the gradients of
// the last call} or {"scores": the gradients}.
extern "C" void lab_subject(const nlohmann::json& inputs, nlohmann::json& answer) {
  if (inputs.contains("weights")) {
    answer["scores"] = lab::softmax_backward(inputs.at("weights").get<lab::Row>(),
                                             inputs.at("grad_weights").get<lab::Row>());
    return;
  }
  const lab::Head head{inputs.at("q").get<lab::Matrix>(), inputs.at("k").get<lab::Matrix>(),
                       inputs.at("v").get<lab::Matrix>()};
  for (const nlohmann::json& grad : inputs.at("grads")) {
    const lab::Head found = lab::attention_backward(head, grad.get<lab::Matrix>());
    answer = {{"q", found.q}, {"k", found.k}, {"v", found.v}};
  }
}
