#include "engine/nn/activation.h"

namespace lockstep::nn {

Variable ReLU::forward(const Variable& x) {
  return activate(x, activation());
}

Activation GELU::activation() const {
  return form_ == GeluForm::erf ? Activation::gelu_erf : Activation::gelu_tanh;
}

Variable GELU::forward(const Variable& x) {
  return activate(x, activation());
}

std::string GELU::extra_text() const {
  return form_ == GeluForm::erf ? "approximate='none'" : "approximate='tanh'";
}

Variable Tanh::forward(const Variable& x) {
  return activate(x, activation());
}

Variable Sigmoid::forward(const Variable& x) {
  return activate(x, activation());
}

}  // namespace lockstep::nn
